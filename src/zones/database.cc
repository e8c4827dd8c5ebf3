// SPDX-License-Identifier: Apache-2.0
#include "zones/database.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <expected>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "base/suggestion.h"
#include "base/text.h"

namespace sluice::zones {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUtc = "UTC";
constexpr std::size_t kNameBytesMax = 64;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;  // The largest there are have 4 kB.

// In the folder, but not the name of a zone: other readings of all of them, one that counts leap
// seconds, and what this machine or an old format is set to.
constexpr std::array<std::string_view, 4> kNotZones = {"posix", "right", "localtime", "posixrules"};

// A name that can be appended to the folder and stays in it.
bool IsPlausible(std::string_view name) {
  const auto belongs = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '+' || c == '/';
  };
  if (name.empty() || name.size() > kNameBytesMax || name.front() == '/') return false;
  const std::string_view first = name.substr(0, name.find('/'));
  return std::ranges::all_of(name, belongs) &&
         std::ranges::find(kNotZones, first) == kNotZones.end();
}

std::string ReadFile(const fs::path& path, std::size_t bytes_max) {
  std::error_code problem;
  if (!fs::is_regular_file(path, problem)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string bytes(bytes_max, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

bool IsTzif(const fs::path& path) { return ReadFile(path, 4) == "TZif"; }

std::expected<Offsets, std::string> Read(const std::string& folder, std::string_view name) {
  if (name == kUtc) return Offsets();
  return Offsets::FromTzif(ReadFile(fs::path(folder) / name, kFileBytesMax));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names = {std::string(kUtc)};
  std::error_code problem;
  for (fs::recursive_directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    const std::string name = at->path().lexically_relative(folder).string();
    if (at->is_directory(problem)) {
      if (!IsPlausible(name)) at.disable_recursion_pending();
    } else if (IsPlausible(name) && IsTzif(at->path())) {
      names.push_back(name);
    }
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::unique(names);
  names.erase(twice.begin(), twice.end());
  return names;
}

// The last part of a name, which is what people remember.
std::string_view PlaceIn(std::string_view name) { return name.substr(name.rfind('/') + 1); }

}  // namespace

std::uint64_t Zone::KeyOf(std::string_view name) {
  // FNV-1a, folded.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return (hash ^ hash >> kKeyBits) & ((std::uint64_t{1} << kKeyBits) - 1);
}

Zone::Zone(std::string name, Offsets offsets) : name_(std::move(name)), key_(KeyOf(name_)) {
  Update(std::move(offsets));
}

void Zone::Update(Offsets offsets) {
  versions_.push_back(std::make_unique<const Offsets>(std::move(offsets)));
  current_.store(versions_.back().get(), std::memory_order_release);
}

Database& Database::System() {
  static Database& database = *[] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets it.
    const char* const folder = std::getenv("TZDIR");
    // Never destroyed: limits may be looked at until the process ends.
    return new Database(folder && *folder ? folder : "/usr/share/zoneinfo");
  }();
  return database;
}

Expected<const Zone*> Database::Find(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  return FindLocked(name);
}

Expected<const Zone*> Database::FindLocked(std::string_view name) {
  if (const auto known = zones_.find(name); known != zones_.end()) return known->second.get();
  if (!IsPlausible(name)) return std::unexpected(Unknown(name));
  if (name != kUtc && !IsTzif(fs::path(folder_) / name)) return std::unexpected(Unknown(name));
  auto offsets = Read(folder_, name);
  if (!offsets) {
    return std::unexpected(
        Error{ErrorCode::kInvalidLimit, text::Cat("zone=", text::Quote(name), ": ", folder_, "/",
                                                  name, " cannot be used: ", offsets.error())});
  }
  auto zone = std::make_unique<Zone>(std::string(name), *std::move(offsets));
  for (const auto& [other, its] : zones_) {
    if (its->key() == zone->key()) {
      return std::unexpected(Error{ErrorCode::kInvalidLimit,
                                   text::Cat("zone=", text::Quote(name), " has the same number as ",
                                             other, "; expected only one of them")});
    }
  }
  return zones_.emplace(name, std::move(zone)).first->second.get();
}

Expected<const Zone*> Database::FindKey(std::uint64_t key) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, zone] : zones_) {
    if (zone->key() == key) return zone.get();
  }
  if (key == Zone::KeyOf(kUtc)) return FindLocked(kUtc);
  for (const std::string& name : NamesLocked()) {
    if (Zone::KeyOf(name) == key) return FindLocked(name);
  }
  return std::unexpected(
      Error{ErrorCode::kInvalidLimit, text::Cat("no time zone in ", folder_, " has number ", key)});
}

std::vector<std::string> Database::Names() {
  const std::scoped_lock lock(mutex_);
  return NamesLocked();
}

const std::vector<std::string>& Database::NamesLocked() {
  if (names_.empty()) names_ = NamesIn(folder_);
  return names_;
}

Error Database::Unknown(std::string_view name) {
  const std::vector<std::string>& names = NamesLocked();
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::string close;
  const auto same_place = std::ranges::find_if(names, [&](std::string_view candidate) {
    return text::EqualsIgnoreCase(PlaceIn(candidate), PlaceIn(name));
  });
  if (same_place != names.end()) {
    close = text::Cat("did you mean ", *same_place, "? ");
  } else {
    close = text::Suggestion(name, known);
  }
  std::string message = text::Cat("zone=", text::Quote(name), " is not a time zone; ", close,
                                  "expected a name such as Europe/Berlin or UTC");
  if (names.size() == 1) message += text::Cat(" (there is no time zone in ", folder_, ")");
  return {ErrorCode::kInvalidLimit, std::move(message)};
}

Database::Reloaded Database::Reload() {
  const std::scoped_lock lock(mutex_);
  names_.clear();
  Reloaded result;
  for (const auto& [name, zone] : zones_) {
    auto offsets = Read(folder_, name);
    if (!offsets) {
      result.problems.push_back(text::Cat("the time zone ", name, " stays as it was: ", folder_,
                                          "/", name, " cannot be used: ", offsets.error()));
    } else if (*offsets != zone->offsets()) {
      zone->Update(*std::move(offsets));
      ++result.changed;
    }
  }
  return result;
}

}  // namespace sluice::zones
