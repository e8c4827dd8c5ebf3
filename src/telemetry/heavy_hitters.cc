// SPDX-License-Identifier: Apache-2.0
#include "telemetry/heavy_hitters.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>
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

// Folded multiplication with two secret words. The sizes mark where the name ends.
std::uint64_t Hash(const std::array<std::uint64_t, 2>& seed, std::string_view name,
                   std::string_view key) {
  std::uint64_t hash = seed[0] ^ (name.size() << 32 | key.size());
  for (const std::string_view text : {name, key}) {
    const char* next = text.data();
    std::size_t left = text.size();
    for (; left >= 8; left -= 8, next += 8) hash = Mix(hash ^ Load(next, 8), seed[1]);
    if (left > 0) hash = Mix(hash ^ Load(next, left), seed[1]);
  }
  return Mix(hash, seed[0] | 1);
}

struct Text {
  std::uint16_t name_size;
  std::uint16_t size;
  bool cut;
  std::array<char, HeavyHitters::kTextBytesShown> bytes;

  void Assign(std::string_view name, std::string_view key) {
    name = name.substr(0, HeavyHitters::kNameBytesShown);
    const std::string_view shown = key.substr(0, bytes.size() - name.size());
    std::ranges::copy(name, bytes.begin());
    std::ranges::copy(shown, bytes.begin() + static_cast<std::ptrdiff_t>(name.size()));
    name_size = static_cast<std::uint16_t>(name.size());
    size = static_cast<std::uint16_t>(name.size() + shown.size());
    cut = shown.size() < key.size();
  }

  std::string_view all() const { return {bytes.data(), size}; }
  std::string_view name() const { return all().substr(0, name_size); }
  std::string_view key() const { return all().substr(name_size); }
};

using Texts = std::array<Text, kWays>;

struct alignas(64) Set {
  std::array<std::uint64_t, kWays> hashes = {};
  std::array<std::uint64_t, kWays> counts = {};  // 0: the place is free.
  std::array<std::uint64_t, kWays> errors = {};

  // The text is written only if it is new.
  void Add(std::uint64_t hash, std::string_view name, std::string_view key, Texts& texts) {
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
    texts[least].Assign(name, key);
  }

  // An upper bound of the count that an absent entry had before it was pushed out.
  std::uint64_t Least() const { return std::ranges::min(counts); }

  void Halve(int times) {
    for (std::size_t i = 0; i < kWays; ++i) {
      counts[i] >>= times;
      errors[i] >>= times;
    }
  }
};

// Texts are stored separately, so that those never written take no memory.
struct Sketch {
  std::array<Set, kSets> sets;
  std::array<Texts, kSets> texts;
};

}  // namespace

class HeavyHitters::Summary {
 public:
  explicit Summary(Time now) : halved_at_(now) {}

  bool TryLock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void Unlock() { held_.store(false, std::memory_order_release); }

  // The following methods require the lock.

  void Add(Kinds kinds, std::uint64_t hash, std::string_view name, std::string_view key) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if (!kinds.Has(kind)) continue;
      Sketch& sketch = sketches_[kind];
      sketch.sets[hash % kSets].Add(hash, name, key, sketch.texts[hash % kSets]);
    }
  }

  // Before anything is added: what is new has not aged.
  void Decay(Time now, std::chrono::seconds half_life) {
    if (now - halved_at_ < half_life) [[likely]]
      return;
    const std::int64_t times = (now - halved_at_) / half_life;
    halved_at_ += times * half_life;
    for (Sketch& sketch : sketches_) {
      for (Set& set : sketch.sets) set.Halve(static_cast<int>(std::min<std::int64_t>(times, 63)));
    }
  }

  const Sketch& Of(Kind kind) const { return sketches_[static_cast<std::size_t>(kind)]; }

 private:
  std::atomic<bool> held_ = false;
  Time halved_at_;
  std::array<Sketch, kKinds> sketches_;
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
  // Only threads that share a slot can race here.
  if (!place.compare_exchange_strong(present, made.get())) return *present;
  return *made.release();
}

void HeavyHitters::Record(Kinds kinds, std::string_view name, std::string_view key, Time now) {
  const std::uint64_t hash = Hash(seed_, name, key);
  Summary& summary = OfThisThread(now);
  if (!summary.TryLock()) return;
  summary.Decay(now, half_life_);
  summary.Add(kinds, hash, name, key);
  summary.Unlock();
}

std::vector<HeavyHitters::Entry> HeavyHitters::Top(Kind kind, std::size_t n, Time now,
                                                   const Wants& wants) const {
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
  std::vector<Set> sets(summaries.size());
  std::vector<Texts> texts(summaries.size());
  for (std::size_t set = 0; set < kSets; ++set) {
    std::uint64_t least_of_all = 0;
    for (std::size_t s = 0; s < summaries.size(); ++s) {
      locked(summaries[s], [&] {
        const Sketch& sketch = summaries[s]->Of(kind);
        sets[s] = sketch.sets[set];
        // Most sets have free places, without a text to copy.
        for (std::size_t i = 0; i < kWays; ++i) {
          if (sets[s].counts[i] > 0) texts[s][i] = sketch.texts[set][i];
        }
      });
      least_of_all += sets[s].Least();
    }
    std::unordered_map<std::uint64_t, Entry> merged;
    for (std::size_t s = 0; s < summaries.size(); ++s) {
      const Set& copy = sets[s];
      for (std::size_t i = 0; i < kWays; ++i) {
        if (copy.counts[i] == 0) continue;
        const Text& text = texts[s][i];
        if (wants && !wants(text.name())) continue;
        Entry& entry = merged[copy.hashes[i]];
        if (entry.count == 0) {
          entry = {.name = std::string(text.name()),
                   .key = std::string(text.key()),
                   .cut = text.cut,
                   .count = least_of_all,
                   .error = least_of_all};
        }
        entry.count += copy.counts[i] - copy.Least();
        entry.error += copy.errors[i] - copy.Least();
      }
    }
    for (auto& [hash, entry] : merged) top.push_back(std::move(entry));
  }

  n = std::min({n, kTopMax, top.size()});
  const auto precedes = [](const Entry& a, const Entry& b) {
    if (a.count != b.count) return a.count > b.count;
    return std::tie(a.key, a.name) < std::tie(b.key, b.name);
  };
  std::ranges::partial_sort(top, top.begin() + static_cast<std::ptrdiff_t>(n), precedes);
  top.resize(n);
  return top;
}

}  // namespace sluice::telemetry
