# SPDX-License-Identifier: Apache-2.0
sluice_test(http_text_test
  SOURCES src/http/rate_limit_fields_test.cc
  LIBRARIES sluice_http_text)
