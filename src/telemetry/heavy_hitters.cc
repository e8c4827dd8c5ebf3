// SPDX-License-Identifier: Apache-2.0
#include "telemetry/heavy_hitters.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <unordered_map>

namespace sluice::telemetry {
namespace {

constexpr std::size_t kSets = HeavyHitters::kSets;
constexpr std::size_t kWays = HeavyHitters::kWays;

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t Load(const char* bytes, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

// Folded multiplication with two secret words.
std::uint64_t Hash(const std::array<std::uint64_t, 2>& seed, std::string_view key) {
  std::uint64_t hash = seed[0] ^ key.size();
  const char* next = key.data();
  std::size_t left = key.size();
  for (; left >= 8; left -= 8, next += 8) hash = Mix(hash ^ Load(next, 8), seed[1]);
  hash = Mix(hash ^ Load(next, left), seed[1]);
  return Mix(hash, seed[0] | 1);
}

struct Text {
  std::uint8_t size;
  bool cut;
  std::array<char, HeavyHitters::kKeyBytesShown> bytes;

  void Assign(std::string_view key) {
    const std::size_t shown = std::min(key.size(), bytes.size());
    std::memcpy(bytes.data(), key.data(), shown);
    size = static_cast<std::uint8_t>(shown);
    cut = shown < key.size();
  }
};

struct alignas(64) Set {
  std::array<std::uint64_t, kWays> hashes = {};
  std::array<std::uint64_t, kWays> counts = {};  // 0: the place is free.
  std::array<std::uint64_t, kWays> errors = {};
  std::array<Text, kWays> texts;

  void Add(std::uint64_t hash, std::string_view key) {
    for (std::size_t i = 0; i < kWays; ++i) {
      if (hashes[i] == hash && counts[i] > 0) {
        ++counts[i];
        return;
      }
    }
    const auto least = static_cast<std::size_t>(std::ranges::min_element(counts) - counts.begin());
    hashes[least] = hash;
    errors[least] = counts[least];
    ++counts[least];
    texts[least].Assign(key);
  }

  // What a key that is not here may have been counted at most before it was pushed out.
  std::uint64_t Least() const { return std::ranges::min(counts); }

  void Halve(int times) {
    for (std::size_t i = 0; i < kWays; ++i) {
      counts[i] >>= times;
      errors[i] >>= times;
    }
  }
};

using Sketch = std::array<Set, kSets>;

}  // namespace

class HeavyHitters::Summary {
 public:
  explicit Summary(Time now) : halved_at_(now) {}

  bool TryLock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void Unlock() { held_.store(false, std::memory_order_release); }

  // The rest is called with the lock.

  void Add(std::uint64_t hash, std::string_view key, bool allowed) {
    sketches_[0][hash % kSets].Add(hash, key);
    if (!allowed) sketches_[1][hash % kSets].Add(hash, key);
  }

  // Before anything is added: what is new has not aged.
  void Decay(Time now, std::chrono::seconds half_life) {
    if (now - halved_at_ < half_life) [[likely]]
      return;
    const std::int64_t times = (now - halved_at_) / half_life;
    halved_at_ += times * half_life;
    for (Sketch& sketch : sketches_) {
      for (Set& set : sketch) set.Halve(static_cast<int>(std::min<std::int64_t>(times, 63)));
    }
  }

  const Set& At(Kind kind, std::size_t set) const {
    return sketches_[static_cast<std::size_t>(kind)][set];
  }

 private:
  std::atomic<bool> held_ = false;
  Time halved_at_;
  std::array<Sketch, 2> sketches_;  // By kind.
};

HeavyHitters::HeavyHitters(std::chrono::seconds half_life) : half_life_(half_life) {
  if (::getentropy(seed_.data(), sizeof(seed_)) != 0) std::abort();
}

HeavyHitters::~HeavyHitters() {
  for (const auto& summary : summaries_) delete summary.load();
}

HeavyHitters::Summary& HeavyHitters::OfThisThread(Time now) {
  std::atomic<Summary*>& place = summaries_[ThreadSlot()];
  if (Summary* const summary = place.load(std::memory_order_acquire)) return *summary;
  auto made = std::make_unique<Summary>(now);
  Summary* present = nullptr;
  // Only threads that share a slot can meet here.
  if (!place.compare_exchange_strong(present, made.get())) return *present;
  return *made.release();
}

void HeavyHitters::Record(std::string_view key, bool allowed, Time now) {
  const std::uint64_t hash = Hash(seed_, key);
  Summary& summary = OfThisThread(now);
  if (!summary.TryLock()) return;
  summary.Decay(now, half_life_);
  summary.Add(hash, key, allowed);
  summary.Unlock();
}

std::vector<HeavyHitters::Entry> HeavyHitters::Top(Kind kind, std::size_t n, Time now) const {
  std::vector<Summary*> summaries;
  for (const auto& place : summaries_) {
    if (Summary* const summary = place.load(std::memory_order_acquire)) {
      summaries.push_back(summary);
    }
  }
  const auto locked = [](Summary* summary, auto use) {
    while (!summary->TryLock()) std::this_thread::yield();
    use();
    summary->Unlock();
  };
  for (Summary* const summary : summaries)
    locked(summary, [&] { summary->Decay(now, half_life_); });

  std::vector<Entry> top;
  std::vector<Set> copies(summaries.size());
  for (std::size_t set = 0; set < kSets; ++set) {
    std::uint64_t least_of_all = 0;
    for (std::size_t s = 0; s < summaries.size(); ++s) {
      locked(summaries[s], [&] { copies[s] = summaries[s]->At(kind, set); });
      least_of_all += copies[s].Least();
    }
    std::unordered_map<std::uint64_t, Entry> merged;
    for (const Set& copy : copies) {
      for (std::size_t i = 0; i < kWays; ++i) {
        if (copy.counts[i] == 0) continue;
        Entry& entry = merged[copy.hashes[i]];
        if (entry.count == 0) {
          const Text& text = copy.texts[i];
          entry = {std::string(text.bytes.data(), text.size), text.cut, least_of_all, least_of_all};
        }
        entry.count += copy.counts[i] - copy.Least();
        entry.error += copy.errors[i] - copy.Least();
      }
    }
    for (auto& [hash, entry] : merged) top.push_back(std::move(entry));
  }

  n = std::min({n, kTopMax, top.size()});
  std::ranges::partial_sort(top, top.begin() + static_cast<std::ptrdiff_t>(n),
                            [](const Entry& a, const Entry& b) {
                              return a.count != b.count ? a.count > b.count : a.key < b.key;
                            });
  top.resize(n);
  return top;
}

}  // namespace sluice::telemetry
