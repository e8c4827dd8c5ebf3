# SPDX-License-Identifier: Apache-2.0
sluice_test(reload_test
  SOURCES src/reload/keeper_test.cc src/reload/kept_rules_test.cc src/reload/managed_rules_test.cc
  LIBRARIES sluice_reload sluice_digest)
