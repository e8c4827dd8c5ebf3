# SPDX-License-Identifier: Apache-2.0
sluice_test(resp_test
  SOURCES src/resp/holds_test.cc src/resp/request_parser_test.cc src/resp/server_test.cc
          src/resp/session_test.cc
          tests/conformance/resp_test.cc
  LIBRARIES sluice_resp sluice_memory sluice_redis_store sluice_test_support)

# With Debian's Python, which has Debian's python3-redis.
find_program(SLUICE_DEBIAN_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME resp_door
  COMMAND ${SLUICE_DEBIAN_PYTHON} ${PROJECT_SOURCE_DIR}/tests/integration/resp_door_test.py
          $<TARGET_FILE:sluice_program>)
set_tests_properties(resp_door PROPERTIES TIMEOUT 900)
