// SPDX-License-Identifier: Apache-2.0
#include "store/redis/announcement.h"

#include "base/text.h"
#include "redis/connection.h"
#include "redis/resp.h"

namespace sluice::redis {

std::string AnnouncementChannel(std::string_view prefix) { return text::Cat(prefix, ":reset"); }

std::string AnnouncementOf(const Charge* charge) {
  return charge ? Command(charge->key, charge->name, charge->limit->ToString()) : "*";
}

std::string AnnounceCommand(std::string_view prefix, const Charge* charge) {
  return Command("PUBLISH", AnnouncementChannel(prefix), AnnouncementOf(charge));
}

void ReadAnnouncement(std::string_view message, const Store::OnRaised& on_raised) {
  RespParser parser({.text_bytes_max = kAnnouncementBytesMax, .nodes_max = 4, .depth_max = 1});
  if (parser.Parse(message) != RespParser::Status::kMessage || parser.nodes().size() != 4) {
    return on_raised(nullptr);
  }
  const auto limit = Limit::Parse(parser.nodes()[3].text);
  if (!limit) return on_raised(nullptr);
  const Charge charge{
      .key = parser.nodes()[1].text, .limit = &*limit, .name = parser.nodes()[2].text};
  on_raised(&charge);
}

}  // namespace sluice::redis
