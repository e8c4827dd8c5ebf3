// SPDX-License-Identifier: Apache-2.0
// Reads serialized protobuf messages in place, for readers that keep to their limits while they
// read.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::grpc {

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

}  // namespace sluice::grpc
