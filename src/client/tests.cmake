# SPDX-License-Identifier: Apache-2.0
sluice_test(client_test
  SOURCES src/client/hold_exchange_test.cc src/client/hold_run_test.cc
          src/client/http_client_test.cc
  LIBRARIES sluice_client)
