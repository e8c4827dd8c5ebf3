// SPDX-License-Identifier: Apache-2.0
#include "api/key_state.h"

#include <span>
#include <string>

#include "base/text.h"
#include "rules/key.h"
#include "rules/override_index.h"

namespace sluice::api {
namespace {

using rules::Override;
using rules::Scope;

std::span<const rules::Band> BandsOf(const Override& found) {
  if (found.effect != Override::Effect::kBands) return {};
  return found.bands;
}

// For a rule's own scope. A value known only by its hash matches no pattern.
std::span<const rules::Band> BandsFor(const rules::Rule& rule, std::string_view key,
                                      std::string_view value) {
  const Override* const found = rules::OverrideIndex(rule).Find(value, key);
  return found == nullptr ? std::span<const rules::Band>(rule.bands) : BandsOf(*found);
}

}  // namespace

std::string WhyNoKey(std::string_view written) {
  const auto at = written.find_first_of(":#|");
  if (at == std::string_view::npos) return {};
  const std::string_view name = written.substr(0, at);
  const std::string_view rest = written.substr(at + 1);
  if (written[at] == '#' && !rules::IsHash(text::Cat("sha256:", rest))) {
    return text::Cat(text::Quote(written), " is cut off: a hash has 64 hexadecimal digits");
  }
  // A masked value would be hashed like any other, and nothing is counted under that.
  const bool covered = rest.starts_with("***") || rest.ends_with("…") || rest.ends_with("...");
  if (written[at] == ':' && covered && rules::IsSecretName(name)) {
    return text::Cat("the value of ", text::Quote(name),
                     " is covered or cut off; expected all of it, or ", name,
                     "#… with its SHA-256, which /admin/v1/top shows");
  }
  return {};
}

std::vector<KeyBand> BandsOf(const rules::RuleSet& rule_set, std::string_view written) {
  std::vector<KeyBand> found;
  for (const rules::Rule& rule : rule_set.rules()) {
    const bool uses_ip = rule.on_missing_key == rules::OnMissingKey::kUseIp;
    for (const Scope own : {rule.scope, uses_ip ? Scope::kPerIp : rule.scope}) {
      const auto scope = rules::KeyScope::Of(own, rule);
      if (!written.starts_with(scope.name)) continue;
      const std::string_view rest = written.substr(scope.name.size());
      const bool whole = own == Scope::kGlobal && rest.empty();
      if (!whole && !rest.starts_with(':') && !rest.starts_with('#')) continue;
      std::string_view value = rest.starts_with(':') ? rest.substr(1) : std::string_view();
      std::string key;
      if (value.empty()) {
        key = written;
      } else if (scope.secret && rules::IsHash(value)) {
        key = rules::OverriddenKey(scope, value);
        value = {};
      } else {
        rules::AppendKey(key, scope, value);
      }
      const auto bands = own == rule.scope ? BandsFor(rule, key, value) : std::span(rule.bands);
      for (const rules::Band& band : bands) found.push_back({&rule, &band, key});
      break;
    }
  }
  return found;
}

}  // namespace sluice::api
