// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/text.h"
#include "telemetry/metrics.h"

namespace sluice::telemetry {
namespace {

// The n-th number, from 1, of /proc/self/stat. The third comes after the program's name in
// parentheses, which may contain anything.
double StatField(int n) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::string_view rest = line;
  rest.remove_prefix(std::min(rest.rfind(')') + 1, rest.size()));
  for (int field = 3; !rest.empty(); ++field) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == n) return static_cast<double>(text::ParseInteger(word).value_or(0));
    rest.remove_prefix(word.size());
  }
  return 0;
}

double TicksPerSecond() { return static_cast<double>(::sysconf(_SC_CLK_TCK)); }
double PageBytes() { return static_cast<double>(::sysconf(_SC_PAGESIZE)); }

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) {
      return static_cast<double>(text::ParseInteger(line.substr(6)).value_or(0));
    }
  }
  return 0;
}

double OpenFds() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // Without the one that reads the folder.
}

double MaxFds() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

void AddProcessMetrics(Registry& registry) {
  using enum Registry::Type;
  registry.AddCallback(kCounter, "process_cpu_seconds_total",
                       "User and system processor time of this process.", {},
                       [] { return (StatField(14) + StatField(15)) / TicksPerSecond(); });
  registry.AddCallback(kGauge, "process_resident_memory_bytes", "Memory that is in use.", {},
                       [] { return StatField(24) * PageBytes(); });
  registry.AddCallback(kGauge, "process_virtual_memory_bytes", "Address space.", {},
                       [] { return StatField(23); });
  registry.AddCallback(kGauge, "process_open_fds", "Open file descriptors.", {}, OpenFds);
  registry.AddCallback(kGauge, "process_max_fds", "Most file descriptors that may be open.", {},
                       MaxFds);
  registry.AddCallback(kGauge, "process_threads", "Threads of this process.", {},
                       [] { return StatField(20); });
  const double started = BootTimeSeconds() + StatField(22) / TicksPerSecond();
  registry.AddCallback(kGauge, "process_start_time_seconds",
                       "When this process started, in seconds since the Unix epoch.", {},
                       [started] { return started; });
}

}  // namespace sluice::telemetry
