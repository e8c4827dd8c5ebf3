// SPDX-License-Identifier: Apache-2.0
// Any file is a snapshot or refused as a whole, and what is loaded can be decided on. The first
// byte selects: a complete file as it is, or the contents of one shard in a file with valid
// checksums, since no fuzzer guesses those.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "store/memory/snapshot.h"

namespace {

using sluice::MemoryStore;

template <typename Number>
void Put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string Block(std::uint32_t kind, std::uint32_t index, std::string_view payload) {
  std::string block;
  Put(block, kind);
  Put(block, index);
  Put(block, static_cast<std::uint64_t>(payload.size()));
  block += payload;
  Put(block, sluice::memory::BlockChecksum(kind, index, payload));
  return block;
}

std::string FileAround(std::string_view shard) {
  std::string header = "SLUICESN";
  Put(header, std::uint32_t{1});
  Put(header, std::uint32_t{MemoryStore::Impl::kShards});
  Put(header, std::uint64_t{1});
  Put(header, std::uint64_t{2});
  std::string file = Block(1, 0, header) + Block(2, 0, shard);
  const std::string empty(12, '\0');
  for (std::uint32_t i = 1; i < MemoryStore::Impl::kShards; ++i) file += Block(2, i, empty);
  // The number of states follows the limits, 25 bytes each.
  std::uint32_t limits = 0;
  std::uint64_t states = 0;
  if (shard.size() >= 4) shard.copy(reinterpret_cast<char*>(&limits), 4);
  const std::size_t offset = 4 + std::size_t{limits} * 25;
  if (shard.size() >= offset + 8) shard.copy(reinterpret_cast<char*>(&states), 8, offset);
  std::string end;
  Put(end, states);
  return file + Block(3, 0, end);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string bytes = data[0] % 2 == 0 ? std::string(input) : FileAround(input);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      ::fmemopen(bytes.data(), bytes.size(), "rb"), &std::fclose);
  const auto store = sluice::memory::ReadSnapshot(file.get(), {});
  if (!store) return 0;

  for (sluice::memory::Shard& shard : (*store)->shards()) {
    const std::lock_guard lock(shard.lock());
    for (const sluice::memory::Slot& slot : shard.slots()) {
      if (slot.empty()) continue;
      const bool has_holds = slot.has_holds();
      const sluice::Limit& limit = shard.LimitOf(has_holds ? slot.held()->slot : slot);
      for (const sluice::TimePoint now : {sluice::TimePoint{}, sluice::kTimeMax}) {
        const auto cost = limit.amount();
        const auto decision =
            has_holds ? sluice::memory::Evaluate(limit, *slot.held(), now, cost).decision
                      : sluice::memory::Evaluate(limit, &slot, now, cost).decision;
        if (decision.remaining < 0 || decision.remaining > limit.amount()) __builtin_trap();
        if (decision.held < 0) __builtin_trap();
      }
    }
    while (shard.Sweep(sluice::kTimeMax, 1024) > 0) {
    }
  }
  return 0;
}
