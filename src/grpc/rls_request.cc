// SPDX-License-Identifier: Apache-2.0
#include "grpc/rls_request.h"

#include <algorithm>

#include "base/text.h"
#include "grpc/fields.h"
#include "rules/context.h"

namespace sluice::grpc {
namespace {

bool ReadEntry(std::string_view bytes, rules::RlsEntry& entry) {
  Fields fields(bytes);
  while (fields.Next()) {
    if (fields.IsText(1)) entry.key = fields.text();
    if (fields.IsText(2)) entry.value = fields.text();
  }
  return fields.ok();
}

bool ReadOverride(std::string_view bytes, RlsOverride& limit) {
  Fields fields(bytes);
  while (fields.Next()) {
    if (fields.IsNumber(1)) limit.requests_per_unit = static_cast<std::uint32_t>(fields.number());
    if (fields.IsNumber(2)) limit.unit = static_cast<std::int32_t>(fields.number());
  }
  return fields.ok();
}

// google.protobuf.UInt64Value
bool ReadWrapped(std::string_view bytes, std::uint64_t& value) {
  Fields fields(bytes);
  while (fields.Next()) {
    if (fields.IsNumber(1)) value = fields.number();
  }
  return fields.ok();
}

Status Malformed() { return {StatusCode::kInternal, "the message is not a RateLimitRequest"}; }

}  // namespace

Status RlsRequest::Parse(std::string_view message) {
  domain = {};
  hits_addend = 0;
  descriptors.clear();
  entries.clear();
  Fields fields(message);
  while (fields.Next()) {
    if (fields.IsText(1)) domain = fields.text();
    if (fields.IsNumber(3)) hits_addend = static_cast<std::uint32_t>(fields.number());
    if (!fields.IsText(2)) continue;
    if (descriptors.size() == kDescriptorsMax) {
      return {StatusCode::kInvalidArgument,
              text::Cat("more than ", kDescriptorsMax, " descriptors")};
    }
    RlsDescriptor& descriptor = descriptors.emplace_back();
    descriptor.first_entry = entries.size();
    Fields parts(fields.text());
    while (parts.Next()) {
      bool ok = true;
      if (parts.IsText(1)) {
        if (entries.size() == kEntriesMax) {
          return {StatusCode::kInvalidArgument, text::Cat("more than ", kEntriesMax, " entries")};
        }
        rules::RlsEntry& entry = entries.emplace_back();
        ok = ReadEntry(parts.text(), entry);
        if (std::max(entry.key.size(), entry.value.size()) > rules::kValueBytesMax) {
          return {StatusCode::kInvalidArgument,
                  text::Cat("an entry of more than ", rules::kValueBytesMax, " bytes")};
        }
      } else if (parts.IsText(2)) {
        // A message may come in parts, which are merged.
        if (!descriptor.limit) descriptor.limit.emplace();
        ok = ReadOverride(parts.text(), *descriptor.limit);
      } else if (parts.IsText(3)) {
        if (!descriptor.hits_addend) descriptor.hits_addend = 0;
        ok = ReadWrapped(parts.text(), *descriptor.hits_addend);
      } else if (parts.IsNumber(4)) {
        descriptor.is_negative_hits = parts.number() != 0;
      }
      if (!ok) return Malformed();
    }
    if (!parts.ok()) return Malformed();
    descriptor.entry_count = entries.size() - descriptor.first_entry;
  }
  return fields.ok() ? Status{} : Malformed();
}

}  // namespace sluice::grpc
