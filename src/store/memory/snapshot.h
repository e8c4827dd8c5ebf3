// SPDX-License-Identifier: Apache-2.0
// The snapshot file of the memory store.
//
// A file is a sequence of blocks, all numbers little-endian:
//
//   block   := kind:u32 index:u32 length:u64 payload[length] checksum:u64
//   file    := header shard[0] .. shard[255] end, and nothing after it
//   header  := "SLUICESN" version:u32 shards:u32 seed:u64[2]
//   shard   := limits:u32 (algorithm:u8 amount:i64 refill:i64 span_us:i64)[limits]
//              slots:u64 slot[slots] (time_us:i64 units:i64)[sum of the logs' entries]
//              hold[the rest]
//   slot    := hash:u64 check:u32 limit:u16 a:u16 b:u64 c:u64, as in memory (slot.h), except that
//              `limit` counts in this block's limits, and b of a log is the number of its entries
//   hold    := slot:u64 units:i64 taken_us:i64 expires_us:i64 on_expiry:u8 status:u8 id_bytes:u8
//              id[id_bytes]; `slot` counts in this block's slots, which hold the states without
//              their holds. Version 1 had none of these.
//   end     := states:u64
//
// The checksum covers kind, index, length and payload. A file that breaks any of these rules is
// refused as a whole. It contains the seed, because the identities mean nothing without it, so only
// its owner can read the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "store/memory/memory_store_impl.h"

namespace sluice::memory {

// See MemoryStore::Save and MemoryStore::Restore.
Expected<std::int64_t> SaveSnapshot(const MemoryStore::Impl& store,
                                    const std::filesystem::path& path);
Expected<std::unique_ptr<MemoryStore::Impl>> LoadSnapshot(const std::filesystem::path& path,
                                                          const MemoryStore::Options& options);

// The same from an open file; for the fuzzer.
Expected<std::unique_ptr<MemoryStore::Impl>> ReadSnapshot(std::FILE* file,
                                                          const MemoryStore::Options& options);

// The checksum of a block; for tests that make files with valid checksums and invalid contents.
std::uint64_t BlockChecksum(std::uint32_t kind, std::uint32_t index, std::string_view payload);

}  // namespace sluice::memory
