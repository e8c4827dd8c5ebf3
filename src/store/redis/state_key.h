// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sluice/store.h"

namespace sluice::redis {

// The Redis key of a charge's state: `<prefix>:{<key>}:<name>`. The braces make all limits of a key
// share a slot of a Cluster.
//
// Key and name are escaped, so that different ones never collide and no client can add braces of
// its own: bytes other than printable ASCII, and any of % { } # =, become %xx. A key or name that
// is long after that is replaced by # and its SHA-256. Without a name, the limit itself is used,
// after an = sign.
std::string StateKey(std::string_view prefix, const Charge& charge);

// The prefix of all states of this key: `<prefix>:{<key>}:`.
std::string KeyPrefix(std::string_view prefix, std::string_view key);

// A key or name as it is stored, unless that is too long.
std::string Escape(std::string_view text);

// The reverse; nothing if Escape never writes such a text.
std::optional<std::string> Unescape(std::string_view escaped);

}  // namespace sluice::redis
