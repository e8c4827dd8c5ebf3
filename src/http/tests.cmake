# SPDX-License-Identifier: Apache-2.0
sluice_test(http_test
  SOURCES src/http/request_reader_test.cc src/http/response_writer_test.cc src/http/server_test.cc
  LIBRARIES sluice_http sluice_test_support)
