# SPDX-License-Identifier: Apache-2.0
sluice_test(service_test
  SOURCES src/service/engine_test.cc src/service/rule_check_test.cc
  LIBRARIES sluice_service sluice_memory)
