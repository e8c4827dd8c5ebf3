// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <new>
#include <set>
#include <variant>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::telemetry {
namespace {

constexpr std::uint64_t kNanosPerSecond = 1'000'000'000;
constexpr double kExactMax = 9'007'199'254'740'992.0;  // 2^53

// For mistakes in our own code that show at start-up, before anything is served.
[[noreturn]] void Abort(const char* what, std::string_view name) {
  std::fprintf(stderr, "metrics: %s: %.*s\n", what, static_cast<int>(name.size()), name.data());
  std::abort();
}

std::uint64_t Total(std::uint64_t* cell) {
  const auto read = [&](std::uint32_t slot) {
    return std::atomic_ref(cell[slot * kCellsMax]).load(std::memory_order_relaxed);
  };
  std::uint64_t total = read(kSharedSlot);
  for (std::uint32_t slot = 0; slot < SlotsEverUsed(); ++slot) total += read(slot);
  return total;
}

bool IsName(std::string_view name) {
  const auto valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && (name[0] < '0' || name[0] > '9') && std::ranges::all_of(name, valid);
}

// Names that begin with two underscores, and those of buckets, are reserved by Prometheus.
bool IsCommonName(std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  std::string lowered(name);
  std::ranges::transform(lowered, lowered.begin(), lower);
  return IsName(lowered) && !name.starts_with("__") && name != "le" && name != "quantile";
}

void AppendHelp(std::string& out, std::string_view help) {
  for (const char c : help) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

// A value as it will be shown, before escaping: cut, and valid UTF-8, because Prometheus refuses
// all metrics of a target that sends anything else.
std::string CleanLabel(std::string_view value) {
  std::string clean;
  for (std::string_view rest = text::CutUtf8(value, kLabelBytesMax); !rest.empty();) {
    const std::size_t length = text::Utf8Length(rest);
    clean += length > 0 ? rest.substr(0, length) : text::kReplacementCharacter;
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

void AppendLabel(std::string& out, std::string_view name, std::string_view clean_value) {
  if (!out.empty() && out.back() != '{') out += ',';
  out += name;
  out += "=\"";
  for (const char c : clean_value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

void AppendSeconds(std::string& out, std::uint64_t ns) {
  AppendNumber(out, ns / kNanosPerSecond);
  std::uint64_t rest = ns % kNanosPerSecond;
  if (rest == 0) return;
  out += '.';
  for (std::uint64_t unit = kNanosPerSecond / 10; rest > 0; unit /= 10) {
    out += static_cast<char>('0' + rest / unit);
    rest %= unit;
  }
}

void AppendDouble(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else if (std::trunc(value) == value && std::abs(value) < kExactMax) {
    AppendNumber(out, static_cast<std::int64_t>(value));
  } else {
    std::array<char, 32> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    out.append(digits.data(), end);
  }
}

void BeginLine(std::string& out, std::string_view name, std::string_view suffix,
               std::string_view labels) {
  out += name;
  out += suffix;
  if (!labels.empty()) {
    out += '{';
    out += labels;
    out += '}';
  }
  out += ' ';
}

std::string Joined(const std::string& common, const std::string& own) {
  return common.empty() || own.empty() ? common + own : common + ',' + own;
}

void AppendHistogram(std::string& out, std::string_view name, const std::string& labels,
                     std::uint64_t* cells) {
  // The count is the sum of the buckets, so that the two always agree.
  std::uint64_t count = 0;
  std::string with_bound;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    std::string bound;
    if (bucket < Histogram::kBoundsNs.size()) {
      AppendSeconds(bound, Histogram::kBoundsNs[bucket]);
    } else {
      bound = "+Inf";
    }
    with_bound = labels;
    AppendLabel(with_bound, "le", bound);
    count += Total(cells + bucket);
    BeginLine(out, name, "_bucket", with_bound);
    AppendNumber(out, count);
    out += '\n';
  }
  BeginLine(out, name, "_sum", labels);
  AppendSeconds(out, Total(cells + Histogram::kBuckets));
  out += '\n';
  BeginLine(out, name, "_count", labels);
  AppendNumber(out, count);
  out += '\n';
}

}  // namespace

Expected<Labels> ParseCommonLabels(std::span<const std::string> texts) {
  const auto invalid = [](std::string_view what, std::string_view expected) {
    return std::unexpected(Error{ErrorCode::kInvalidInput, text::Cat(what, expected)});
  };
  if (texts.size() > kCommonLabelsMax) {
    return invalid(text::Cat(texts.size(), " labels; expected at most "),
                   text::Cat(kCommonLabelsMax));
  }
  Labels labels;
  for (const std::string& text : texts) {
    const auto equals = std::min(text.find('='), text.size());
    const std::string_view name = text::Trim(std::string_view(text).substr(0, equals));
    const std::string_view value =
        text::Trim(std::string_view(text).substr(std::min(equals + 1, text.size())));
    if (!IsCommonName(name) || value.empty() || value.size() > kLabelBytesMax) {
      return invalid(text::Quote(text),
                     text::Cat(": expected name=value, such as application=checkout: letters, "
                               "digits and _, but neither le nor quantile nor __ at the start, "
                               "and a value of 1 to ",
                               kLabelBytesMax, " bytes"));
    }
    if (std::ranges::find(labels, name, &Labels::value_type::first) != labels.end()) {
      return invalid(text::Quote(name), " is given twice; expected each label once");
    }
    labels.emplace_back(name, value);
  }
  return labels;
}

std::uint64_t Counter::Value() const { return cell_ == nullptr ? 0 : Total(cell_); }

std::uint64_t Histogram::Count() const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; cells_ != nullptr && i < kBuckets; ++i) count += Total(cells_ + i);
  return count;
}

std::chrono::nanoseconds Histogram::Sum() const {
  const std::uint64_t ns = cells_ == nullptr ? 0 : Total(cells_ + kBuckets);
  return std::chrono::nanoseconds{static_cast<std::int64_t>(ns)};
}

CounterFamily::CounterFamily(Spec spec, std::uint64_t* cells)
    : spec_(std::move(spec)),
      cells_(cells),
      base_((spec_.sets_max + 1) * spec_.outcomes.size(), 0) {
  for (std::size_t place = 0; place < spec_.sets_max; ++place) free_.push_back(place);
}

std::vector<std::string> CounterFamily::Clean(std::span<const std::string_view> values) const {
  std::vector<std::string> clean;
  for (const std::string_view value : values) clean.push_back(CleanLabel(value));
  clean.resize(spec_.labels.size());
  return clean;
}

CounterFamily::Set CounterFamily::With(std::span<const std::string_view> values) {
  std::vector<std::string> clean = Clean(values);
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(clean); found != places_.end()) {
    return Set(CellsOf(found->second));
  }
  // A set named like the catch-all is the catch-all: no series may appear twice.
  const bool is_other = std::ranges::all_of(clean, [](const auto& v) { return v == kOtherLabel; });
  if (free_.empty() || is_other) {
    other_used_ = true;
    return Set(CellsOf(spec_.sets_max));
  }
  const std::size_t place = free_.front();
  free_.pop_front();
  const std::size_t outcomes = spec_.outcomes.size();
  for (std::size_t i = 0; i < outcomes; ++i) {
    base_[place * outcomes + i] = Total(CellsOf(place) + i);
  }
  places_.emplace(std::move(clean), place);
  return Set(CellsOf(place));
}

void CounterFamily::Retain(std::span<const std::vector<std::string_view>> sets) {
  std::set<std::vector<std::string>> kept;
  for (const auto& values : sets) kept.insert(Clean(values));
  const std::lock_guard lock(mutex_);
  for (auto place = places_.begin(); place != places_.end();) {
    if (kept.contains(place->first)) {
      ++place;
      continue;
    }
    free_.push_back(place->second);
    place = places_.erase(place);
  }
}

void CounterFamily::AppendTo(std::string& out, const std::string& common) const {
  const std::size_t outcomes = spec_.outcomes.size();
  const auto append = [&](std::span<const std::string> values, std::size_t place) {
    for (std::size_t i = 0; i < outcomes; ++i) {
      std::string labels = common;
      for (std::size_t l = 0; l < spec_.labels.size(); ++l) {
        AppendLabel(labels, spec_.labels[l], values[l]);
      }
      AppendLabel(labels, spec_.outcome_label, spec_.outcomes[i]);
      BeginLine(out, spec_.name, "", labels);
      AppendNumber(out, Total(CellsOf(place) + i) - base_[place * outcomes + i]);
      out += '\n';
    }
  };
  const std::lock_guard lock(mutex_);
  for (const auto& [values, place] : places_) append(values, place);
  if (other_used_) {
    append(std::vector<std::string>(spec_.labels.size(), std::string(kOtherLabel)), spec_.sets_max);
  }
}

struct Registry::Family {
  struct Series {
    std::string labels;
    std::variant<Counter, Histogram, Gauge, std::function<double()>> metric;
  };

  std::string name;
  std::string help;
  std::string type;
  std::vector<Series> series;
  std::set<std::string, std::less<>> label_names;
  std::unique_ptr<CounterFamily> dynamic;  // If set, it is the only member.
  std::vector<std::string> samples_labels;
  std::function<Samples()> samples;  // Likewise.

  void Add(const Labels& labels, decltype(Series::metric) metric) {
    std::string text;
    for (const auto& [label, value] : labels) {
      if (!IsName(label)) Abort("not a label name", label);
      AppendLabel(text, label, CleanLabel(value));
      label_names.insert(label);
    }
    series.push_back({std::move(text), std::move(metric)});
  }

  void AppendTo(std::string& out, const Labels& all_common) const {
    std::string common;
    for (const auto& [label, value] : all_common) {
      if (!label_names.contains(label)) AppendLabel(common, label, CleanLabel(value));
    }
    out += "# HELP " + name + " ";
    AppendHelp(out, help);
    out += "\n# TYPE " + name + " " + type + "\n";
    for (const Series& one : series) AppendTo(out, one, Joined(common, one.labels));
    if (dynamic) dynamic->AppendTo(out, common);
    if (samples) AppendSamples(out, common);
  }

  // Those that labels cannot distinguish are merged.
  void AppendSamples(std::string& out, const std::string& common) const {
    std::map<std::string, double> by_labels;
    for (const auto& [values, number] : samples()) {
      std::string text = common;
      for (std::size_t i = 0; i < samples_labels.size(); ++i) {
        AppendLabel(text, samples_labels[i], CleanLabel(values.at(i)));
      }
      by_labels.emplace(std::move(text), number);
    }
    for (const auto& [text, number] : by_labels) {
      BeginLine(out, name, "", text);
      AppendDouble(out, number);
      out += '\n';
    }
  }

  void AppendTo(std::string& out, const Series& one, const std::string& labels) const {
    if (const auto* histogram = std::get_if<Histogram>(&one.metric)) {
      return AppendHistogram(out, name, labels, histogram->cells_);
    }
    BeginLine(out, name, "", labels);
    if (const auto* counter = std::get_if<Counter>(&one.metric)) {
      AppendNumber(out, counter->Value());
    } else if (const auto* gauge = std::get_if<Gauge>(&one.metric)) {
      AppendNumber(out, gauge->Value());
    } else {
      AppendDouble(out, std::get<std::function<double()>>(one.metric)());
    }
    out += '\n';
  }
};

Registry::Registry()
    : cells_(static_cast<std::uint64_t*>(std::calloc(kSlots * kCellsMax, sizeof(std::uint64_t)))) {
  if (!cells_) throw std::bad_alloc();
}

Registry::~Registry() = default;

std::uint64_t* Registry::Allocate(std::size_t cells) {
  if (cells > kCellsMax - cells_used_) Abort("no room for more than kCellsMax", "cells");
  std::uint64_t* const first = cells_.get() + cells_used_;
  cells_used_ += cells;
  return first;
}

Registry::Family& Registry::Find(std::string_view name, std::string_view help,
                                 std::string_view type) {
  for (const auto& family : families_) {
    if (family->name != name) continue;
    if (family->type != type || family->help != help || family->dynamic) {
      Abort("made twice, and differently", name);
    }
    return *family;
  }
  if (!IsName(name)) Abort("not a name", name);
  families_.push_back(std::make_unique<Family>());
  Family& family = *families_.back();
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

Counter Registry::AddCounter(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  const Counter counter(Allocate(1));
  Find(name, help, "counter").Add(labels, counter);
  return counter;
}

Histogram Registry::AddHistogram(std::string_view name, std::string_view help,
                                 const Labels& labels) {
  const std::lock_guard lock(mutex_);
  const Histogram histogram(Allocate(Histogram::kCells));
  Find(name, help, "histogram").Add(labels, histogram);
  return histogram;
}

Gauge Registry::AddGauge(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  const Gauge gauge(&gauges_.emplace_back(0));
  Find(name, help, "gauge").Add(labels, gauge);
  return gauge;
}

void Registry::AddCallback(Type type, std::string_view name, std::string_view help,
                           const Labels& labels, std::function<double()> read) {
  const std::lock_guard lock(mutex_);
  Find(name, help, type == Type::kCounter ? "counter" : "gauge").Add(labels, std::move(read));
}

void Registry::AddSamples(Type type, std::string_view name, std::string_view help,
                          std::vector<std::string> labels, std::function<Samples()> read) {
  for (const std::string& label : labels) {
    if (!IsName(label)) Abort("not a label name", label);
  }
  const std::lock_guard lock(mutex_);
  Family& family = Find(name, help, type == Type::kCounter ? "counter" : "gauge");
  if (!family.series.empty() || family.samples) Abort("made twice, and differently", name);
  family.label_names.insert(labels.begin(), labels.end());
  family.samples_labels = std::move(labels);
  family.samples = std::move(read);
}

void Registry::AddNames(std::string_view name, std::string_view help, std::string_view label,
                        std::function<std::vector<std::string>()> read) {
  AddSamples(Type::kGauge, name, help, {std::string(label)}, [read = std::move(read)] {
    Samples samples;
    for (std::string& value : read()) samples.push_back({{std::move(value)}, 1});
    return samples;
  });
}

CounterFamily& Registry::AddFamily(CounterFamily::Spec spec) {
  const std::lock_guard lock(mutex_);
  Family& family = Find(spec.name, spec.help, "counter");
  if (!family.series.empty()) Abort("made twice, and differently", spec.name);
  std::uint64_t* const cells = Allocate((spec.sets_max + 1) * spec.outcomes.size());
  family.label_names.insert(spec.labels.begin(), spec.labels.end());
  family.label_names.insert(spec.outcome_label);
  family.dynamic.reset(new CounterFamily(std::move(spec), cells));
  return *family.dynamic;
}

void Registry::SetCommonLabels(Labels labels) {
  const std::lock_guard lock(mutex_);
  common_ = std::move(labels);
}

std::string Registry::Text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& family : families_) family->AppendTo(out, common_);
  return out;
}

std::vector<std::string> Registry::Names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  names.reserve(families_.size());
  for (const auto& family : families_) names.push_back(family->name);
  return names;
}

}  // namespace sluice::telemetry
