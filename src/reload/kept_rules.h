// SPDX-License-Identifier: Apache-2.0
// The file that keeps what was last read of a rule set store, for a start without it:
//
//   sluice-rules 1 <SHA-256 of all that follows>
//   <the store's revision, or nothing>
//   stored|good <bytes of the id> <bytes of the document>
//   <id><document>
//   …
//
// `stored` is a document as it lay in the store, `good` the last valid one where that is not.
#pragma once

#include <string>
#include <string_view>

#include "reload/rule_set_store.h"
#include "reload/sources.h"
#include "sluice/error.h"

namespace sluice::reload {

inline constexpr std::size_t kKeptBytesMax = std::size_t{128} << 20;

struct KeptRules {
  Revision revision;
  Documents stored;
  Documents good;  // Of those in `stored` that are not valid.

  friend bool operator==(const KeptRules&, const KeptRules&) = default;
};

std::string Encode(const KeptRules& kept);

// Error: kInvalidInput, if a byte of it is not as it was written.
Expected<KeptRules> Decode(std::string_view text);

// Whoever reads the file sees the old one or the new one; it is on disk when this returns, and
// only its owner may read it. Errors: kIo; kInvalidInput if it would be longer than kKeptBytesMax.
Expected<void> Write(const KeptRules& kept, const std::string& file);

// Errors: kNotFound; kIo; kInvalidInput if it is damaged, and then it was set aside as
// `<file>.damaged`.
Expected<KeptRules> Read(const std::string& file);

}  // namespace sluice::reload
