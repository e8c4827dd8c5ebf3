# SPDX-License-Identifier: Apache-2.0
sluice_test(config_test
  SOURCES src/config/load_test.cc src/config/settings_test.cc
  LIBRARIES sluice_config)
target_compile_definitions(config_test PRIVATE SLUICE_SOURCE="${PROJECT_SOURCE_DIR}")
