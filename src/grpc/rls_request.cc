// SPDX-License-Identifier: Apache-2.0
#include "grpc/rls_request.h"

#include <algorithm>

#include "base/text.h"
#include "rules/context.h"

namespace sluice::grpc {
namespace {

// Iterates over the fields of one message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  // Returns false at the end, and if what follows is not a field; see ok().
  bool Next() {
    if (rest_.empty() || !ok_) return false;
    const std::uint32_t tag = ReadTag();
    number_ = tag >> 3U;
    wire_type_ = tag & 7U;
    // A group can only be skipped.
    ok_ = ok_ && number_ != 0 && (wire_type_ == kStartGroup ? SkipGroup(number_, 0) : ReadValue());
    return ok_;
  }

  bool ok() const { return ok_; }
  bool IsNumber(std::uint32_t number) const { return number_ == number && wire_type_ == kVarint; }
  bool IsText(std::uint32_t number) const { return number_ == number && wire_type_ == kLength; }
  std::uint64_t number() const { return varint_; }
  std::string_view text() const { return text_; }

 private:
  static constexpr std::uint32_t kVarint = 0;
  static constexpr std::uint32_t kFixed64 = 1;
  static constexpr std::uint32_t kLength = 2;
  static constexpr std::uint32_t kStartGroup = 3;
  static constexpr std::uint32_t kEndGroup = 4;
  static constexpr std::uint32_t kFixed32 = 5;
  static constexpr int kGroupDepthMax = 100;  // As in protobuf.

  std::uint64_t ReadVarint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    ok_ = false;
    return 0;
  }

  // Truncates to 32 bits, as protobuf does.
  std::uint32_t ReadTag() { return static_cast<std::uint32_t>(ReadVarint()); }

  bool Skip(std::uint64_t size) {
    if (size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }

  bool ReadValue() {
    switch (wire_type_) {
      case kVarint:
        varint_ = ReadVarint();
        return ok_;
      case kFixed64:
        return Skip(8);
      case kLength: {
        const std::uint64_t size = ReadVarint();
        if (!ok_ || size > rest_.size()) return false;
        text_ = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      case kFixed32:
        return Skip(4);
      default:
        return false;
    }
  }

  // Skips to the end of the group that has just begun.
  bool SkipGroup(std::uint32_t group, int depth) {
    if (depth > kGroupDepthMax) return false;
    while (ok_ && !rest_.empty()) {
      const std::uint32_t tag = ReadTag();
      const std::uint32_t number = tag >> 3U;
      wire_type_ = tag & 7U;
      if (!ok_ || number == 0) return false;
      if (wire_type_ == kEndGroup) {
        wire_type_ = kStartGroup;  // The caller must not see what was in it.
        return number == group;
      }
      if (!(wire_type_ == kStartGroup ? SkipGroup(number, depth + 1) : ReadValue())) return false;
    }
    return false;
  }

  std::string_view rest_;
  bool ok_ = true;
  std::uint32_t number_ = 0;
  std::uint32_t wire_type_ = 0;
  std::uint64_t varint_ = 0;
  std::string_view text_;
};

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
