# SPDX-License-Identifier: Apache-2.0
sluice_test(telemetry_test
  SOURCES src/telemetry/heavy_hitters_test.cc src/telemetry/log_test.cc
          src/telemetry/log_writer_test.cc src/telemetry/metrics_test.cc src/telemetry/trace_test.cc
  LIBRARIES sluice_telemetry Boost::json)
target_compile_definitions(telemetry_test PRIVATE SLUICE_DOCS="${PROJECT_SOURCE_DIR}/docs")
