// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sluice/store.h"

namespace sluice::redis {

// How stores that share a Redis tell each other, by PUBLISH, that a budget was made larger than
// time and use explain: a RESP array of the state's key, name and limit. Any other message means
// any state.

std::string AnnouncementChannel(std::string_view prefix);

// The message; null: any state. At most kAnnouncementBytesMax long.
std::string AnnouncementOf(const Charge* charge);

// The command that sends it to everyone who listens.
std::string AnnounceCommand(std::string_view prefix, const Charge* charge);

inline constexpr std::size_t kAnnouncementBytesMax = kKeyBytesMax + kNameBytesMax + 512;

// Calls `on_raised` once. A message that cannot be parsed means any state, which is always safe.
void ReadAnnouncement(std::string_view message, const Store::OnRaised& on_raised);

}  // namespace sluice::redis
