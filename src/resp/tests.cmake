# SPDX-License-Identifier: Apache-2.0
sluice_test(resp_test
  SOURCES src/resp/request_parser_test.cc src/resp/server_test.cc src/resp/session_test.cc
          tests/conformance/resp_test.cc
  LIBRARIES sluice_resp sluice_memory sluice_test_support)
