// SPDX-License-Identifier: Apache-2.0
#include "reload/rule_set_store.h"

#include <algorithm>

#include "base/text.h"
#include "telemetry/trace.h"

namespace sluice::reload {
namespace {

constexpr std::size_t kLineageBytes = 32;
constexpr std::size_t kNumberDigitsMax = 15;  // A script in Redis counts exactly up to 2^53.

bool Holds(const Change& change, const std::string* stored) {
  switch (change.condition) {
    case Change::If::kAny:
      return true;
    case Change::If::kAbsent:
      return !stored;
    case Change::If::kSame:
      return stored && *stored == change.same;
  }
  return false;
}

}  // namespace

std::optional<Revision> Revision::Parse(std::string_view text) {
  const auto colon = text.find(':');
  if (colon != kLineageBytes) return std::nullopt;
  const std::string_view lineage = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::ranges::all_of(lineage, is_hex) || digits.empty() || digits.size() > kNumberDigitsMax ||
      !std::ranges::all_of(digits, is_digit)) {
    return std::nullopt;
  }
  return Revision{.lineage = std::string(lineage), .number = *text::ParseInteger(digits)};
}

std::string Revision::ToString() const {
  return lineage.empty() ? std::string() : text::Cat(lineage, ":", number);
}

std::string NewLineage() {
  return std::string(telemetry::IdSource::OfThisThread().NewRequestId().text());
}

Expected<Changed> ProcessRuleSetStore::Apply(const Change& change) {
  const auto revision = Revision::Parse(stored_.marker);
  if (!change.at_least.lineage.empty() &&
      (!revision || revision->lineage != change.at_least.lineage ||
       revision->number < change.at_least.number)) {
    return Changed{.result = Changed::Result::kBehind};
  }
  const auto found = stored_.documents.find(change.id);
  const bool existed = found != stored_.documents.end();
  if (!Holds(change, existed ? &found->second : nullptr)) {
    return Changed{.result = Changed::Result::kOther};
  }
  if (!change.document && !existed) {
    return Changed{.existed = false, .revision = revision.value_or(Revision{})};
  }
  if (change.document) {
    stored_.documents.insert_or_assign(change.id, *change.document);
  } else {
    stored_.documents.erase(found);
  }
  const Revision next{.lineage = revision ? revision->lineage : NewLineage(),
                      .number = revision ? revision->number + 1 : 1};
  stored_.marker = next.ToString();
  return Changed{.existed = existed, .revision = next};
}

Expected<bool> ProcessRuleSetStore::Restore(const Restoration& restoration) {
  if (stored_.marker != restoration.marker) return false;
  if (restoration.mode == Restoration::Mode::kReplace) stored_.documents.clear();
  stored_.documents.insert(restoration.documents.begin(), restoration.documents.end());
  stored_.marker = restoration.revision.ToString();
  return true;
}

}  // namespace sluice::reload
