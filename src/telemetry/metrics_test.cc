// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace sluice::telemetry {
namespace {

using std::chrono::nanoseconds;
using testing::HasSubstr;
using testing::Not;

TEST(Registry, RendersEachFamilyOnceWithAllItsSeries) {
  Registry registry;
  const Counter a = registry.AddCounter("a_total", "Things.\nA \\ line.", {{"kind", "x"}});
  registry.AddGauge("b", "Others.").Set(-3);
  registry.AddCounter("a_total", "Things.\nA \\ line.", {{"kind", "y"}, {"n", "1"}}).Add(5);
  registry.AddCallback(Registry::Type::kGauge, "c", "Read.", {}, [] { return 0.5; });
  a.Add();
  a.Add(2);
  EXPECT_EQ(registry.Text(),
            "# HELP a_total Things.\\nA \\\\ line.\n"
            "# TYPE a_total counter\n"
            "a_total{kind=\"x\"} 3\n"
            "a_total{kind=\"y\",n=\"1\"} 5\n"
            "# HELP b Others.\n"
            "# TYPE b gauge\n"
            "b -3\n"
            "# HELP c Read.\n"
            "# TYPE c gauge\n"
            "c 0.5\n");
}

TEST(Registry, RendersNumbersWhoseLabelsComeAndGo) {
  Registry registry;
  Registry::Samples samples;
  std::vector<std::string> names;
  registry.AddSamples(Registry::Type::kCounter, "a_total", "A.", {"node", "kind"},
                      [&] { return samples; });
  registry.AddNames("b", "B.", "name", [&] { return names; });
  constexpr std::string_view kNone =
      "# HELP a_total A.\n# TYPE a_total counter\n# HELP b B.\n# TYPE b gauge\n";
  EXPECT_EQ(registry.Text(), kNone);
  samples = {{{"two", "x"}, 2}, {{"one", "y"}, 1.5}, {{"two", "x"}, 3}, {{"two", "y"}, 4}};
  names = {"n", "n"};
  EXPECT_EQ(registry.Text(),
            "# HELP a_total A.\n# TYPE a_total counter\n"
            "a_total{node=\"one\",kind=\"y\"} 1.5\na_total{node=\"two\",kind=\"x\"} 2\n"
            "a_total{node=\"two\",kind=\"y\"} 4\n"
            "# HELP b B.\n# TYPE b gauge\nb{name=\"n\"} 1\n");
  samples.clear();
  names.clear();
  EXPECT_EQ(registry.Text(), kNone);
}

TEST(Registry, EscapesLabelValuesAndKeepsThemUtf8) {
  Registry registry;
  registry.AddCounter("a_total", "A.", {{"l", "q\"b\\n\nu\xC3\xA9z\xFF"}});
  EXPECT_THAT(registry.Text(),
              HasSubstr("a_total{l=\"q\\\"b\\\\n\\nu\xC3\xA9z\xEF\xBF\xBD\"} 0\n"));
}

TEST(Registry, AddsCommonLabelsToAllMetrics) {
  Registry registry;
  registry.AddCounter("a_total", "A.");
  registry.AddGauge("b", "B.", {{"kind", "x"}});
  registry.AddHistogram("c_seconds", "C.");
  registry.AddNames("d", "D.", "name", [] { return std::vector<std::string>{"n"}; });
  auto& family = registry.AddFamily({.name = "e_total",
                                     .help = "E.",
                                     .labels = {"rule"},
                                     .outcome_label = "outcome",
                                     .outcomes = {"ok"}});
  static_cast<void>(family.With({"r"}));
  registry.SetCommonLabels({{"application", "shop \"1\""}, {"kind", "common"}});
  const std::string text = registry.Text();
  for (const char* line :
       {"\na_total{application=\"shop \\\"1\\\"\",kind=\"common\"} 0\n",
        "\nb{application=\"shop \\\"1\\\"\",kind=\"x\"} 0\n",
        "\nc_seconds_bucket{application=\"shop \\\"1\\\"\",kind=\"common\",le=\"+Inf\"} 0\n",
        "\nc_seconds_count{application=\"shop \\\"1\\\"\",kind=\"common\"} 0\n",
        "\nd{application=\"shop \\\"1\\\"\",kind=\"common\",name=\"n\"} 1\n",
        "\ne_total{application=\"shop \\\"1\\\"\",kind=\"common\",rule=\"r\",outcome=\"ok\"} "
        "0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(ParseCommonLabels, TakesNamesAndValues) {
  const std::vector<std::string> good = {"application=shop", "Region = eu=1 "};
  EXPECT_EQ(ParseCommonLabels(good).value(), (Labels{{"application", "shop"}, {"Region", "eu=1"}}));
  for (const char* bad : {"application", "=x", "a=", "1a=x", "a-b=x", "__a=x", "le=1"}) {
    EXPECT_FALSE(ParseCommonLabels(std::vector<std::string>{bad})) << bad;
  }
  EXPECT_FALSE(ParseCommonLabels(std::vector<std::string>{"a=x", "a=y"}));
  EXPECT_FALSE(ParseCommonLabels(std::vector<std::string>{"a=" + std::string(129, 'x')}));
  EXPECT_FALSE(ParseCommonLabels(std::vector<std::string>(17, "a=x")));
}

TEST(Registry, CutsLongLabelValues) {
  Registry registry;
  registry.AddCounter("a_total", "A.", {{"l", std::string(1000, 'x')}});
  EXPECT_THAT(registry.Text(), HasSubstr("{l=\"" + std::string(kLabelBytesMax, 'x') + "\"}"));
}

TEST(Registry, WritesNumbersOfCallbacksExactly) {
  Registry registry;
  const auto add = [&](const char* name, double value) {
    registry.AddCallback(Registry::Type::kGauge, name, "N.", {}, [value] { return value; });
  };
  add("whole", 1234567890123456.0);
  add("tenth", 0.1);
  add("huge", 1e300);
  add("nan", std::numeric_limits<double>::quiet_NaN());
  add("inf", std::numeric_limits<double>::infinity());
  const std::string text = registry.Text();
  for (const char* line :
       {"whole 1234567890123456\n", "tenth 0.1\n", "huge 1e+300\n", "nan NaN\n", "inf +Inf\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Histogram, EveryBoundBelongsToItsOwnBucket) {
  EXPECT_EQ(Histogram::kBoundsNs.front(), 1'000u);
  EXPECT_EQ(Histogram::kBoundsNs.back(), 1'000'000'000u);
  EXPECT_EQ(Histogram::Bucket(0), 0u);
  for (std::size_t i = 0; i < Histogram::kBoundsNs.size(); ++i) {
    const std::uint64_t bound = Histogram::kBoundsNs[i];
    EXPECT_EQ(Histogram::Bucket(bound - 1), i);
    EXPECT_EQ(Histogram::Bucket(bound), i);
    EXPECT_EQ(Histogram::Bucket(bound + 1), i + 1);
  }
  EXPECT_EQ(Histogram::Bucket(std::numeric_limits<std::uint64_t>::max()), Histogram::kBuckets - 1);
}

TEST(Histogram, BucketsAgreeWithALinearSearch) {
  for (std::uint64_t ns = 1; ns < std::uint64_t{1} << 40; ns += ns / 97 + 1) {
    std::size_t expected = 0;
    while (expected < Histogram::kBoundsNs.size() && ns > Histogram::kBoundsNs[expected])
      ++expected;
    ASSERT_EQ(Histogram::Bucket(ns), expected) << ns;
  }
}

TEST(Histogram, RendersCumulativeBucketsInSeconds) {
  Registry registry;
  const Histogram h = registry.AddHistogram("h_seconds", "H.", {{"k", "v"}});
  h.Observe(nanoseconds{1'000});
  h.Observe(nanoseconds{2'000});
  h.Observe(nanoseconds{2'000'000'001});
  h.Observe(nanoseconds{-5});
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE h_seconds histogram\n"
                              "h_seconds_bucket{k=\"v\",le=\"0.000001\"} 2\n"
                              "h_seconds_bucket{k=\"v\",le=\"0.0000025\"} 3\n"
                              "h_seconds_bucket{k=\"v\",le=\"0.000005\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("h_seconds_bucket{k=\"v\",le=\"1\"} 3\n"
                              "h_seconds_bucket{k=\"v\",le=\"+Inf\"} 4\n"
                              "h_seconds_sum{k=\"v\"} 2.000003001\n"
                              "h_seconds_count{k=\"v\"} 4\n"));
  EXPECT_EQ(h.Count(), 4u);
  EXPECT_EQ(h.Sum(), nanoseconds{2'000'003'001});
}

TEST(Counter, OneThatNobodyMadeCountsNothing) {
  Counter{}.Add();
  Histogram{}.Observe(nanoseconds{1});
  Gauge{}.Set(1);
  CounterFamily::Set{}[3].Add();
  EXPECT_EQ(Counter{}.Value(), 0u);
  EXPECT_EQ(Histogram{}.Count(), 0u);
}

// Twice as many threads as slots, all alive at once, so that some must share; several times in a
// row, so that slots are passed on.
TEST(Counter, CountsExactlyAcrossThreadsThatComeAndGo) {
  constexpr int kThreads = 2 * kOwnSlots;
  constexpr int kRounds = 3;
  constexpr int kAdds = 2'000;
  Registry registry;
  const Counter counter = registry.AddCounter("a_total", "A.");
  const Histogram histogram = registry.AddHistogram("h_seconds", "H.");
  std::atomic<int> sharing = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::barrier together(kThreads);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        if (ThreadSlot() == kSharedSlot) ++sharing;
        together.arrive_and_wait();
        for (int i = 0; i < kAdds; ++i) {
          counter.Add();
          histogram.Observe(nanoseconds{1'500});
        }
      });
    }
  }
  EXPECT_EQ(counter.Value(), std::uint64_t{kRounds} * kThreads * kAdds);
  EXPECT_EQ(histogram.Count(), counter.Value());
  EXPECT_EQ(histogram.Sum(), nanoseconds{1'500} * std::int64_t{kRounds} * kThreads * kAdds);
  EXPECT_GE(sharing, kRounds * (kThreads - static_cast<int>(kOwnSlots)));
}

TEST(Counter, NeverGoesBackWhileOthersCount) {
  Registry registry;
  const Counter counter = registry.AddCounter("a_total", "A.");
  const std::jthread writer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) counter.Add();
  });
  std::uint64_t last = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t now = counter.Value();
    ASSERT_GE(now, last);
    last = now;
  }
}

struct AtThreadExit {
  const Counter* counter = nullptr;
  ~AtThreadExit() {
    if (counter != nullptr) counter->Add();
  }
};

TEST(Counter, CountsInTheDestructorsOfAThreadsOwnObjects) {
  Registry registry;
  const Counter counter = registry.AddCounter("a_total", "A.");
  std::jthread([&] {
    thread_local AtThreadExit at_exit;  // Made before the slot is taken, so destroyed after it.
    at_exit.counter = &counter;
    counter.Add();
  }).join();
  EXPECT_EQ(counter.Value(), 2u);
}

CounterFamily::Spec RulesSpec(std::size_t sets_max) {
  return {.name = "r_total",
          .help = "R.",
          .labels = {"set", "rule"},
          .outcome_label = "outcome",
          .outcomes = {"yes", "no"},
          .sets_max = sets_max};
}

TEST(CounterFamily, HasACounterForEachOutcomeOfEachSet) {
  Registry registry;
  CounterFamily& family = registry.AddFamily(RulesSpec(10));
  family.With({"s", "a"})[1].Add(2);
  family.With({"s", "b"})[0].Add();
  family.With({"s", "a"})[1].Add();
  EXPECT_EQ(registry.Text(),
            "# HELP r_total R.\n# TYPE r_total counter\n"
            "r_total{set=\"s\",rule=\"a\",outcome=\"yes\"} 0\n"
            "r_total{set=\"s\",rule=\"a\",outcome=\"no\"} 3\n"
            "r_total{set=\"s\",rule=\"b\",outcome=\"yes\"} 1\n"
            "r_total{set=\"s\",rule=\"b\",outcome=\"no\"} 0\n");
}

TEST(CounterFamily, CountsWhatDoesNotFitAsOther) {
  Registry registry;
  CounterFamily& family = registry.AddFamily(RulesSpec(2));
  for (int i = 0; i < 100; ++i) family.With({"s", std::to_string(i)})[0].Add();
  const std::string text = registry.Text();
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 3 * 2);
  EXPECT_THAT(text, HasSubstr("r_total{set=\"other\",rule=\"other\",outcome=\"yes\"} 98\n"));
}

TEST(CounterFamily, NeverRendersASeriesTwice) {
  Registry registry;
  CounterFamily& family = registry.AddFamily(RulesSpec(2));
  family.With({"other", "other"})[0].Add();
  family.With({"s", "\xFF"})[0].Add();
  family.With({"s", "\xFE"})[0].Add();
  family.With({"s", "overflow"});
  family.With({"s", "overflows"})[0].Add();
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("r_total{set=\"other\",rule=\"other\",outcome=\"yes\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("r_total{set=\"s\",rule=\"\xEF\xBF\xBD\",outcome=\"yes\"} 2\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 3 * 2);
}

TEST(CounterFamily, ForgottenSetsMakeRoomAndStartFromZeroWhenTheyComeBack) {
  Registry registry;
  CounterFamily& family = registry.AddFamily(RulesSpec(2));
  family.With({"s", "a"})[0].Add(7);
  family.With({"s", std::string(1000, 'b')})[0].Add(9);
  const std::string b(1000, 'b');
  family.Retain(std::vector<std::vector<std::string_view>>{{"s", b}});
  EXPECT_THAT(registry.Text(), Not(HasSubstr("rule=\"a\"")));
  EXPECT_THAT(registry.Text(), HasSubstr("outcome=\"yes\"} 9\n"));
  family.With({"s", "c"})[0].Add();
  EXPECT_THAT(registry.Text(), HasSubstr("r_total{set=\"s\",rule=\"c\",outcome=\"yes\"} 1\n"));
  EXPECT_THAT(registry.Text(), Not(HasSubstr("other")));
}

TEST(RegistryDeathTest, RefusesOneNameForTwoTypes) {
  Registry registry;
  registry.AddCounter("a_total", "A.");
  EXPECT_DEATH(registry.AddGauge("a_total", "A."), "made twice, and differently: a_total");
  EXPECT_DEATH(registry.AddCounter("a-b", "A."), "not a name: a-b");
}

double ValueOf(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

TEST(ProcessMetrics, DescribeThisProcess) {
  Registry registry;
  AddProcessMetrics(registry);
  const std::string text = registry.Text();
  EXPECT_GT(ValueOf(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(ValueOf(text, "process_virtual_memory_bytes"), 1e6);
  EXPECT_GE(ValueOf(text, "process_open_fds"), 3);
  EXPECT_GE(ValueOf(text, "process_max_fds"), ValueOf(text, "process_open_fds"));
  EXPECT_GE(ValueOf(text, "process_cpu_seconds_total"), 0);
  EXPECT_GE(ValueOf(text, "process_threads"), 1);
  const double now = static_cast<double>(std::chrono::duration_cast<std::chrono::seconds>(
                                             std::chrono::system_clock::now().time_since_epoch())
                                             .count());
  EXPECT_GT(ValueOf(text, "process_start_time_seconds"), now - 86'400);
  EXPECT_LE(ValueOf(text, "process_start_time_seconds"), now + 2);
}

}  // namespace
}  // namespace sluice::telemetry
