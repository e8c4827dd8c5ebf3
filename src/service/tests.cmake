# SPDX-License-Identifier: Apache-2.0
sluice_test(service_test
  SOURCES src/service/engine_test.cc src/service/hold_call_test.cc
          src/service/rate_limit_fields_test.cc
          src/service/rule_check_test.cc src/service/service_metrics_test.cc
  LIBRARIES sluice_service sluice_memory Boost::json)
target_compile_definitions(service_test PRIVATE SLUICE_DOCS="${PROJECT_SOURCE_DIR}/docs")
