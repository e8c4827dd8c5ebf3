// SPDX-License-Identifier: Apache-2.0
#include "cli/hide_secrets.h"

#include <algorithm>
#include <string_view>

#include "config/settings.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kAfterScheme = "://";
constexpr std::string_view kPassword = "password=";
constexpr std::string_view kCut = "\"...";  // Where text::Quote cuts; the '@' may be missing.

bool IsSecretFlag(std::string_view name) {
  return std::ranges::any_of(config::AllSettings(), [&](const config::Setting& setting) {
    return setting.secret == config::Secret::kYes && setting.flag == name;
  });
}

void Cover(std::span<char> text) { std::ranges::fill(text, '*'); }

void CoverUri(std::span<char> text) {
  const std::string_view uri(text.data(), text.size());
  const std::size_t scheme = uri.find(kAfterScheme);
  if (scheme == std::string_view::npos) return;
  const std::size_t begin = scheme + kAfterScheme.size();
  std::size_t at = uri.rfind('@');
  if (at == std::string_view::npos) at = uri.find(kCut, begin);
  const std::size_t password = uri.find(kPassword, begin);
  if (password != std::string_view::npos) Cover(text.subspan(password + kPassword.size()));
  if (at != std::string_view::npos && at > begin) Cover(text.subspan(begin, at - begin));
}

}  // namespace

void HideSecrets(std::span<char*> arguments) {
  bool is_secret = false;  // Because of the flag before it.
  for (char* const argument : arguments) {
    const std::string_view text = argument;
    const std::span<char> bytes(argument, text.size());
    const std::size_t value = text.find('=') + 1;  // Or zero: npos is -1.
    const bool next_is_secret = IsSecretFlag(text);
    if (is_secret) {
      Cover(bytes);
    } else if (value > 0 && IsSecretFlag(text.substr(0, value - 1))) {
      Cover(bytes.subspan(value));
    } else {
      CoverUri(bytes);
    }
    is_secret = next_is_secret;
  }
}

std::string WithoutSecrets(std::string text) {
  CoverUri(text);
  return text;
}

}  // namespace sluice::cli
