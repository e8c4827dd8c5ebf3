// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule_set.h"
#include "sluice/error.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::service {

// What a client says about a hold that it wants.
struct HoldWish {
  std::string_view id = {};                // Empty: one that nobody guesses.
  std::optional<Micros> ttl = {};          // None: the shortest that its rules say.
  std::optional<OnExpiry> on_expiry = {};  // None: kRelease if all of its rules say so.
};

// What the doors call the id of a hold. It contains all that another instance needs to end the
// hold, so that nothing is looked up anywhere: the id under which stores know it, and what it was
// made of.
//
// It is not signed. Whoever may make holds may also take from any budget, so there is nothing to
// gain by writing one's own; and it tells its owner the names of the rules that count, and keys, of
// which secrets are hashed.
struct HoldTicket {
  // Of the text. It must fit into the path of a request.
  static constexpr std::size_t kBytesMax = 6 * 1024;

  static constexpr std::size_t kPartsMax = kChargesMax + rules::kShadowChargesMax;

  // A charge that is on hold.
  struct Part {
    std::string key;
    Limit limit;
    std::string name;
    std::int64_t held = 0;              // Its cost.
    std::int64_t units_per_permit = 1;  // Under its rule, if every permit costs the same.
    bool shadow = false;                // On hold by itself, and without effect on answers.
  };

  std::string id;
  TimePoint expires{};  // When it was made.
  Micros ttl{0};        // As it was made; zero: as its limits say.
  bool held = true;     // False: nothing is on hold, because the store could not be asked.
  std::vector<Part> parts;

  // Base64url. The error, kInvalidRequest, says that it would be longer than kBytesMax.
  Expected<std::string> ToText() const;

  // The error, kInvalidRequest, says that it is not the id of a hold.
  static Expected<HoldTicket> Parse(std::string_view text);
};

}  // namespace sluice::service
