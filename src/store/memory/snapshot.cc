// SPDX-License-Identifier: Apache-2.0
#include "store/memory/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "core/kernel.h"

namespace sluice::memory {
namespace {

constexpr std::string_view kMagic = "SLUICESN";
constexpr std::uint32_t kVersion = 2;  // And 1, which is the same without holds.
constexpr std::uint32_t kHeader = 1;
constexpr std::uint32_t kShard = 2;
constexpr std::uint32_t kEnd = 3;
using core::kExactMax;

template <typename Number>
void Put(std::string& out, Number number) {
  static_assert(std::is_arithmetic_v<Number>);
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

Error IoError(const std::filesystem::path& path, std::string_view what) {
  const int error = errno;
  return {ErrorCode::kIo, text::Cat("snapshot ", path.native(), ": ", what, ": ",
                                    std::generic_category().message(error))};
}

Error Damaged(std::string what) { return {ErrorCode::kSnapshotDamaged, std::move(what)}; }

// What is copied from a shard under its lock; everything slower happens without the lock.
struct Image {
  std::vector<Slot> slots;
  std::unordered_map<std::uint16_t, Limit> limits;

  void CopyFrom(const Shard& shard) {
    slots.clear();
    limits.clear();
    logs_.clear();
    log_entries_.clear();
    holds_.clear();
    std::unique_lock lock(shard.lock());
    const std::size_t size = shard.slots().size();
    lock.unlock();
    slots.reserve(size);
    lock.lock();
    std::uint16_t known = 0;
    for (const Slot& place : shard.slots()) {
      if (place.empty()) continue;
      Slot slot = place;
      if (place.has_holds()) {
        slot.limit = place.held()->slot.limit;
        slot.set_state(place.held()->slot.state());
        place.held()->holds.ForEach([&](std::string_view id, const HoldRecord& hold) {
          holds_.push_back({slots.size(), std::string(id), hold});
        });
      }
      slots.push_back(slot);
      if (slot.limit != known) {
        limits.try_emplace(slot.limit, shard.LimitOf(slot));
        known = slot.limit;
      }
      if (!IsLog(shard.LimitOf(slot))) continue;
      const core::Log& log = *LogIn(slot.state());
      logs_.push_back({slots.size() - 1, log.entries().size(), log.total_before()});
      log_entries_.insert(log_entries_.end(), log.entries().begin(), log.entries().end());
    }
  }

  // The entries of all logs in the file's format; see the head of snapshot.h.
  std::string EncodeLogs() {
    std::string records;
    std::size_t at = 0;
    for (const CopiedLog& log : logs_) {
      std::uint64_t total = log.total_before;
      for (const core::Log::Entry& entry : std::span(log_entries_).subspan(at, log.entries)) {
        Put(records, entry.time);
        Put(records, entry.total - total);
        total = entry.total;
      }
      at += log.entries;
      slots[log.slot].b = log.entries;
    }
    return records;
  }

  std::string EncodeHolds() const {
    std::string records;
    for (const CopiedHold& hold : holds_) {
      Put(records, static_cast<std::uint64_t>(hold.slot));
      Put(records, hold.record.units);
      Put(records, hold.record.taken_us);
      Put(records, hold.record.expires_us);
      Put(records, static_cast<std::uint8_t>(hold.record.on_expiry));
      Put(records, static_cast<std::uint8_t>(hold.record.status));
      Put(records, static_cast<std::uint8_t>(hold.id.size()));
      records += hold.id;
    }
    return records;
  }

 private:
  struct CopiedHold {
    std::size_t slot;
    std::string id;
    HoldRecord record;
  };

  struct CopiedLog {
    std::size_t slot;
    std::size_t entries;
    std::uint64_t total_before;
  };

  std::vector<CopiedLog> logs_;
  std::vector<core::Log::Entry> log_entries_;
  std::vector<CopiedHold> holds_;
};

std::string EncodeShard(Image& image) {
  const std::string log_records = image.EncodeLogs();
  std::string payload;
  std::unordered_map<std::uint16_t, std::uint16_t> numbers;
  Put(payload, static_cast<std::uint32_t>(image.limits.size()));
  for (const auto& [number, limit] : image.limits) {
    numbers.emplace(number, static_cast<std::uint16_t>(numbers.size()));
    Put(payload, static_cast<std::uint8_t>(limit.algorithm()));
    Put(payload, limit.amount());
    Put(payload, limit.refill());
    Put(payload, limit.span().count());
  }
  Put(payload, static_cast<std::uint64_t>(image.slots.size()));
  payload.reserve(payload.size() + image.slots.size() * sizeof(Slot) + log_records.size());
  for (Slot slot : image.slots) {
    slot.limit = numbers.at(slot.limit);
    payload.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
  }
  return payload + log_records + image.EncodeHolds();
}

// A file that becomes visible under its name only when it is complete and on disk.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path)
      : path_(path), temporary_(path.native() + ".tmp") {}
  ~AtomicFile() {
    if (fd_ < 0) return;
    if (!committed_) ::unlink(temporary_.c_str());
    ::close(fd_);
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Expected<void> Open() {
    const int fd =
        ::open(temporary_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return std::unexpected(IoError(temporary_, "cannot create"));
    // The lock keeps a second writer out. One that opened the file before it was renamed must not
    // write either: its file has become the finished snapshot.
    struct stat opened;
    struct stat named;
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 || ::fstat(fd, &opened) != 0 ||
        ::stat(temporary_.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
        opened.st_dev != named.st_dev) {
      ::close(fd);
      return std::unexpected(
          Error{ErrorCode::kIo, text::Cat("snapshot ", path_.native(), ": already being written")});
    }
    fd_ = fd;
    // The file that was there may belong to anyone: it becomes ours alone, or is not used.
    if (!S_ISREG(opened.st_mode) || opened.st_uid != ::geteuid() || ::fchmod(fd_, 0600) != 0 ||
        ::ftruncate(fd_, 0) != 0) {
      return std::unexpected(
          Error{ErrorCode::kIo, text::Cat("snapshot ", path_.native(), ": ", temporary_.native(),
                                          " is not a file of ours")});
    }
    return {};
  }

  Expected<void> Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return std::unexpected(IoError(temporary_, "cannot write"));
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

  Expected<void> WriteBlock(std::uint32_t kind, std::size_t index, std::string_view payload) {
    std::string frame;
    Put(frame, kind);
    Put(frame, static_cast<std::uint32_t>(index));
    Put(frame, static_cast<std::uint64_t>(payload.size()));
    std::string checksum;
    Put(checksum, BlockChecksum(kind, static_cast<std::uint32_t>(index), payload));
    for (const std::string_view part :
         {std::string_view(frame), payload, std::string_view(checksum)}) {
      if (auto written = Write(part); !written) return written;
    }
    return {};
  }

  Expected<void> Commit() {
    if (::fsync(fd_) != 0) return std::unexpected(IoError(temporary_, "cannot sync"));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return std::unexpected(IoError(path_, "cannot rename"));
    }
    committed_ = true;
    // Syncing the directory puts the new name on disk.
    const auto parent = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
    const int directory = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = directory >= 0 && ::fsync(directory) == 0;
    if (directory >= 0) ::close(directory);
    if (!synced) return std::unexpected(IoError(parent, "cannot sync"));
    return {};
  }

 private:
  const std::filesystem::path path_;
  const std::filesystem::path temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

// Reads numbers from a payload. A read past its end is an error, and stays one.
class Payload {
 public:
  explicit Payload(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number Get() {
    Number number{};
    if (bytes_.size() < sizeof(number)) {
      bytes_ = {};
      ok_ = false;
      return number;
    }
    std::memcpy(&number, bytes_.data(), sizeof(number));
    bytes_.remove_prefix(sizeof(number));
    return number;
  }
  std::string_view Take(std::size_t size) {
    if (bytes_.size() < size) {
      bytes_ = {};
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  bool ok() const { return ok_; }
  std::size_t left() const { return bytes_.size(); }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

Expected<std::string> ReadBlock(std::FILE* file, std::uint32_t kind, std::size_t index) {
  char frame[16];
  if (std::fread(frame, 1, sizeof(frame), file) != sizeof(frame)) {
    return std::unexpected(Damaged("it ends early"));
  }
  Payload fields({frame, sizeof(frame)});
  const bool expected_block = fields.Get<std::uint32_t>() == kind &&
                              fields.Get<std::uint32_t>() == static_cast<std::uint32_t>(index);
  const auto length = fields.Get<std::uint64_t>();
  if (!expected_block) return std::unexpected(Damaged("a block is missing or out of place"));

  // Read in pieces, so that a false length costs no more memory than the file is long.
  constexpr std::uint64_t kPiece = 1 << 20;
  std::string payload;
  while (payload.size() < length) {
    const std::size_t have = payload.size();
    payload.resize(have + static_cast<std::size_t>(std::min(kPiece, length - have)));
    if (std::fread(payload.data() + have, 1, payload.size() - have, file) !=
        payload.size() - have) {
      return std::unexpected(Damaged("it ends early"));
    }
  }
  std::uint64_t checksum = 0;
  if (std::fread(&checksum, 1, sizeof(checksum), file) != sizeof(checksum)) {
    return std::unexpected(Damaged("it ends early"));
  }
  if (checksum != BlockChecksum(kind, static_cast<std::uint32_t>(index), payload)) {
    return std::unexpected(Damaged("a checksum does not match"));
  }
  return payload;
}

Expected<Limit> DecodeLimit(Payload& payload) {
  const auto algorithm = payload.Get<std::uint8_t>();
  const auto amount = payload.Get<std::int64_t>();
  const auto refill = payload.Get<std::int64_t>();
  const Micros span{payload.Get<std::int64_t>()};
  if (algorithm >= core::kAlgorithmCount) {
    return std::unexpected(Damaged("an unknown algorithm"));
  }
  return Limit::Make(static_cast<Algorithm>(algorithm), amount, refill, span);
}

// Whether the arithmetic may trust the state: a checksum shows who wrote it, not whether it is
// valid.
bool Valid(const Limit& limit, const Packed& packed, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    if constexpr (kIsLog<Kernel>) {
      return true;  // Its entries are checked one by one.
    } else {
      return Kernel::IsSound(limit, Unpack<Kernel>(packed), now);
    }
  });
}

Expected<std::unique_ptr<core::Log>> DecodeLog(Payload& records, std::uint64_t count) {
  auto log = std::make_unique<core::Log>();
  std::int64_t newest = -1;
  std::int64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto time = records.Get<std::int64_t>();
    const auto units = records.Get<std::int64_t>();
    if (!records.ok() || time <= newest || time > kTimeMax.time_since_epoch().count() ||
        units < 1 || units > kExactMax - sum) {
      return std::unexpected(Damaged("a log is not in order"));
    }
    // With the longest window, nothing is forgotten while reading.
    log->Add(kSpanMax, TimePoint{Micros{time}}, units);
    newest = time;
    sum += units;
  }
  return log;
}

// Whether the clock was set back since a state was written: the state is ahead by more than its
// budget takes to be full again, and by more than a second. Waiting for it would lock its key out,
// so the budget counts as untouched; see docs/adr/0008.
bool LiesTooFarAhead(const Limit& limit, const Packed& state, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) {
    const auto known = StateIn<Kernel>(limit, state, now, 0);
    const std::int64_t tick = limit.tick().count();
    const std::int64_t ahead =
        Kernel::NewestTick(limit, known) - now.time_since_epoch().count() / tick;
    return ahead > Kernel::RecoveryTicks(limit) &&
           ahead * tick > Micros{std::chrono::seconds{1}}.count();
  });
}

// Whether the clock was set back since a hold was made: it was made further ahead than it lasts.
bool LiesTooFarAhead(const HoldRecord& hold, TimePoint now) {
  constexpr std::int64_t kToleratedUs = 1'000'000;
  const std::int64_t ahead = hold.taken_us - now.time_since_epoch().count();
  return ahead > std::max(kToleratedUs, hold.expires_us - hold.taken_us);
}

Expected<std::pair<std::string, HoldRecord>> DecodeHold(Payload& records) {
  HoldRecord hold{.units = records.Get<std::int64_t>(),
                  .taken_us = records.Get<std::int64_t>(),
                  .expires_us = records.Get<std::int64_t>()};
  const auto on_expiry = records.Get<std::uint8_t>();
  const auto status = records.Get<std::uint8_t>();
  const auto id_bytes = records.Get<std::uint8_t>();
  const std::string_view id = records.Take(id_bytes);
  const std::int64_t last_us = kTimeMax.time_since_epoch().count();
  if (!records.ok() || !core::InRange(hold.units, kExactMax) ||
      !core::InRange(hold.taken_us, last_us) || !core::InRange(hold.expires_us, last_us) ||
      on_expiry > static_cast<std::uint8_t>(OnExpiry::kRelease) ||
      status > static_cast<std::uint8_t>(HoldRecord::Status::kSettledLate) || id.empty() ||
      id.size() > kHoldIdBytesMax) {
    return std::unexpected(Damaged("a hold is out of range"));
  }
  hold.on_expiry = static_cast<OnExpiry>(on_expiry);
  hold.status = static_cast<HoldRecord::Status>(status);
  return std::pair(std::string(id), hold);
}

// `slots` are all slots of the shard, as they are in the file.
Expected<void> DecodeHolds(Payload& records, std::string_view slots, Shard& shard, TimePoint now) {
  while (records.left() > 0) {
    const auto number = records.Get<std::uint64_t>();
    auto hold = DecodeHold(records);
    if (!hold) return std::unexpected(hold.error());
    auto& [id, record] = *hold;
    if (number >= slots.size() / sizeof(Slot)) {
      return std::unexpected(Damaged("a hold is on no state"));
    }
    Slot slot;
    std::memcpy(&slot, slots.data() + number * sizeof(Slot), sizeof(Slot));
    Slot* const place = shard.Find(slot.identity());
    // Its state lies too far ahead, or the hold does.
    if (!place || LiesTooFarAhead(record, now)) continue;
    const Limit limit = shard.LimitOf(place->has_holds() ? place->held()->slot : *place);
    HeldState& state = shard.MakeHeld(place, slot.identity(), limit, now);
    const bool live = record.status == HoldRecord::Status::kLive;
    if (state.holds.Find(id) || (live && !state.holds.HasRoom(record.units))) {
      return std::unexpected(Damaged("a hold is out of place"));
    }
    shard.AddHold(state, id, record);
  }
  if (!records.ok()) return std::unexpected(Damaged("a hold is not complete"));
  return {};
}

Expected<std::int64_t> DecodeShard(std::string_view bytes, Shard& shard, TimePoint now) {
  Payload payload(bytes);
  std::vector<Limit> limits;
  for (auto left = payload.Get<std::uint32_t>(); left > 0; --left) {
    if (!payload.ok() || limits.size() == LimitRegistry::kLimitsMax) {
      return std::unexpected(Damaged("too many limits"));
    }
    const auto limit = DecodeLimit(payload);
    if (!limit) return std::unexpected(Damaged(limit.error().message));
    limits.push_back(*limit);
  }
  const auto count = payload.Get<std::uint64_t>();
  if (!payload.ok() || count > payload.left() / sizeof(Slot)) {
    return std::unexpected(Damaged("more states than there is room for"));
  }
  const std::string_view slots = payload.bytes().substr(0, count * sizeof(Slot));
  Payload records(payload.bytes().substr(slots.size()));

  const std::lock_guard lock(shard.lock());
  shard.Reserve(count);
  std::uint64_t hash = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto slot = payload.Get<Slot>();
    // Hashes ascend, and genuine ones are neither equal nor crowded.
    if (slot.limit >= limits.size() || (i > 0 && slot.hash <= hash) || shard.crowded()) {
      return std::unexpected(Damaged("a state is out of place"));
    }
    hash = slot.hash;
    const Limit& limit = limits[slot.limit];
    if (!Valid(limit, slot.state(), now)) {
      return std::unexpected(Damaged("a state is out of range"));
    }
    Packed state = slot.state();
    std::unique_ptr<core::Log> log;
    if (IsLog(limit)) {
      auto decoded = DecodeLog(records, slot.b);
      if (!decoded) return std::unexpected(decoded.error());
      log = *std::move(decoded);
      state = Pack(log.get());
    }
    if (core::NeedsHold(limit)) state = {};  // It sums up the holds that are restored below.
    if (LiesTooFarAhead(limit, state, now)) {
      ++shard.dropped_ahead;
      continue;
    }
    shard.Restore(slot.identity(), limit, state);
    static_cast<void>(log.release());
  }
  if (const auto holds = DecodeHolds(records, slots, shard, now); !holds) {
    return std::unexpected(holds.error());
  }
  return static_cast<std::int64_t>(count);
}

}  // namespace

std::uint64_t BlockChecksum(std::uint32_t kind, std::uint32_t index, std::string_view payload) {
  constexpr Seed kSeed = {0x6563696c75732e31, 0x746f687370616e73};
  const std::array<std::uint64_t, 2> frame = {std::uint64_t{kind} << 32 | index, payload.size()};
  return SipHash<1, 3>(kSeed, frame, payload).low;
}

Expected<std::int64_t> SaveSnapshot(const MemoryStore::Impl& store,
                                    const std::filesystem::path& path) {
  AtomicFile file(path);
  if (auto opened = file.Open(); !opened) return std::unexpected(opened.error());

  std::string header(kMagic);
  Put(header, kVersion);
  Put(header, static_cast<std::uint32_t>(MemoryStore::Impl::kShards));
  for (const std::uint64_t word : store.seed()) Put(header, word);
  Expected<void> written = file.WriteBlock(kHeader, 0, header);

  Image image;
  std::int64_t states = 0;
  for (std::size_t i = 0; written && i < MemoryStore::Impl::kShards; ++i) {
    image.CopyFrom(store.shards()[i]);
    states += static_cast<std::int64_t>(image.slots.size());
    written = file.WriteBlock(kShard, i, EncodeShard(image));
  }
  std::string end;
  Put(end, states);
  if (written) written = file.WriteBlock(kEnd, 0, end);
  if (written) written = file.Commit();
  if (!written) return std::unexpected(written.error());
  return states;
}

Expected<std::unique_ptr<MemoryStore::Impl>> ReadSnapshot(std::FILE* file,
                                                          const MemoryStore::Options& options) {
  const auto header = ReadBlock(file, kHeader, 0);
  if (!header) return std::unexpected(header.error());
  if (!header->starts_with(kMagic)) return std::unexpected(Damaged("it is not a snapshot"));
  Payload fields(std::string_view(*header).substr(kMagic.size()));
  const auto version = fields.Get<std::uint32_t>();
  if (version < 1 || version > kVersion) {
    return std::unexpected(
        Damaged(text::Cat("it is of version ", version, "; expected 1 to ", kVersion)));
  }
  const auto shards = fields.Get<std::uint32_t>();
  const Seed seed = {fields.Get<std::uint64_t>(), fields.Get<std::uint64_t>()};
  if (!fields.ok() || fields.left() != 0 || shards != MemoryStore::Impl::kShards) {
    return std::unexpected(Damaged("its header is not as expected"));
  }

  auto store = std::make_unique<MemoryStore::Impl>(options, seed);
  const TimePoint now = store->options().clock->Now();
  std::int64_t states = 0;
  for (std::size_t i = 0; i < MemoryStore::Impl::kShards; ++i) {
    const auto payload = ReadBlock(file, kShard, i);
    if (!payload) return std::unexpected(payload.error());
    const auto count = DecodeShard(*payload, store->shards()[i], now);
    if (!count) return std::unexpected(count.error());
    states += *count;
  }
  const auto end = ReadBlock(file, kEnd, 0);
  if (!end) return std::unexpected(end.error());
  Payload total(*end);
  if (total.Get<std::int64_t>() != states || !total.ok() || total.left() != 0) {
    return std::unexpected(Damaged("states are missing"));
  }
  if (std::fgetc(file) != EOF) return std::unexpected(Damaged("unexpected bytes after the end"));
  return store;
}

Expected<std::unique_ptr<MemoryStore::Impl>> LoadSnapshot(const std::filesystem::path& path,
                                                          const MemoryStore::Options& options) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const bool missing = errno == ENOENT;
    Error error = IoError(path, "cannot open");
    if (missing) error.code = ErrorCode::kNotFound;
    return std::unexpected(std::move(error));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(fd, "rb"), &std::fclose);
  struct stat opened;
  if (::fstat(fd, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    return std::unexpected(
        Error{ErrorCode::kIo, text::Cat("snapshot ", path.native(), ": expected a regular file")});
  }
  auto store = ReadSnapshot(file.get(), options);
  if (store) return store;
  if (std::ferror(file.get())) return std::unexpected(IoError(path, "cannot read"));

  // Set aside, so that the next save does not destroy data that may still be useful.
  const std::filesystem::path aside = path.native() + ".damaged";
  const bool renamed = ::rename(path.c_str(), aside.c_str()) == 0;
  return std::unexpected(Damaged(
      text::Cat("snapshot ", path.native(), " is damaged: ", store.error().message,
                renamed ? "; set aside as " + aside.native() : "; it could not be renamed")));
}

}  // namespace sluice::memory
