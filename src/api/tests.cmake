# SPDX-License-Identifier: Apache-2.0
sluice_test(api_test
  SOURCES src/api/check_document_test.cc src/api/health_test.cc src/api/identity_test.cc
          src/api/key_state_test.cc src/api/public_api_test.cc
  LIBRARIES sluice_api sluice_memory)
