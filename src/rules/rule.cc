// SPDX-License-Identifier: Apache-2.0
#include "rules/rule.h"

#include <utility>

namespace sluice::rules {

std::string_view ToString(Scope scope) {
  switch (scope) {
    case Scope::kGlobal:
      return "GLOBAL";
    case Scope::kPerIp:
      return "PER_IP";
    case Scope::kPerUser:
      return "PER_USER";
    case Scope::kPerApiKey:
      return "PER_API_KEY";
    case Scope::kCustom:
      return "CUSTOM";
  }
  std::unreachable();
}

std::string_view ToString(OnMissingKey on_missing_key) {
  switch (on_missing_key) {
    case OnMissingKey::kSkip:
      return "SKIP";
    case OnMissingKey::kDeny:
      return "DENY";
    case OnMissingKey::kUseIp:
      return "USE_IP";
  }
  std::unreachable();
}

}  // namespace sluice::rules
