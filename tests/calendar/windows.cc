// SPDX-License-Identifier: Apache-2.0
// Prints the windows of calendars, for windows_test.py. Reads lines "LIMIT MICROSECONDS", and
// prints "START END" for each; or, for a line "LIMIT", what is wrong with it, or nothing.
#include <cstdint>
#include <iostream>
#include <map>
#include <string>

#include "core/calendar.h"
#include "sluice/limit.h"

int main() {
  std::map<std::string, sluice::Limit> limits;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto blank = line.find(' ');
    const std::string text = line.substr(0, blank);
    auto known = limits.find(text);
    if (known == limits.end()) {
      const auto limit = sluice::Limit::Parse(text);
      if (!limit) {
        std::cout << limit.error().message << '\n';
        continue;
      }
      known = limits.emplace(text, *limit).first;
    }
    if (blank == std::string::npos) {
      std::cout << '\n';
      continue;
    }
    const auto window =
        sluice::core::Calendar::WindowAt(known->second, std::stoll(line.substr(blank + 1)));
    std::cout << window.start << ' ' << window.end << '\n';
  }
}
