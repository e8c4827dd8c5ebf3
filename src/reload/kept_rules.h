// SPDX-License-Identifier: Apache-2.0
// The file that keeps what was last read from a rule set store, for a start without it:
//
//   sluice-rules 1 <SHA-256 of all that follows>
//   <the store's revision, or nothing>
//   stored|good <bytes of the id> <bytes of the document>
//   <id><document>
//   …
//
// `stored` is a document as it was in the store, `good` the last valid version if that one is not.
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
  Documents good;  // For those in `stored` that are not valid.

  friend bool operator==(const KeptRules&, const KeptRules&) = default;
};

std::string Encode(const KeptRules& kept);

// Error: kInvalidInput, if any byte differs from what was written.
Expected<KeptRules> Decode(std::string_view text);

// Readers of the file see the old version or the new one. It is on disk when this returns, and only
// its owner may read it. Errors: kIo; kInvalidInput if it would be longer than kKeptBytesMax.
Expected<void> Write(const KeptRules& kept, const std::string& file);

// Errors: kNotFound; kIo; kInvalidInput if it is damaged, in which case it was renamed to
// `<file>.damaged`.
Expected<KeptRules> Read(const std::string& file);

}  // namespace sluice::reload
