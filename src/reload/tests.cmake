# SPDX-License-Identifier: Apache-2.0
sluice_test(reload_test
  SOURCES src/reload/keeper_test.cc
  LIBRARIES sluice_reload)
