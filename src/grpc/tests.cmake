# SPDX-License-Identifier: Apache-2.0
find_package(ZLIB REQUIRED)
add_library(sluice_h2_client STATIC ${PROJECT_SOURCE_DIR}/tests/support/h2_client.cc)
target_include_directories(sluice_h2_client PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(sluice_h2_client PUBLIC PkgConfig::NGHTTP2 ZLIB::ZLIB)

sluice_test(grpc_test
  SOURCES src/grpc/limiter_test.cc src/grpc/rls_test.cc src/grpc/server_test.cc src/grpc/services_test.cc
          src/grpc/session_test.cc tests/conformance/rls_test.cc
  LIBRARIES sluice_grpc sluice_memory sluice_redis_store sluice_h2_client sluice_test_support)
if(SLUICE_SANITIZE MATCHES thread)
  # Compiled with different flags than the rest, because of protobuf.
  set_target_properties(grpc_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endif()

# With Debian's Python, which has Debian's python3-grpcio.
find_program(SLUICE_DEBIAN_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME grpc_door
  COMMAND ${SLUICE_DEBIAN_PYTHON} ${PROJECT_SOURCE_DIR}/tests/integration/grpc_door_test.py
          $<TARGET_FILE:sluice_program>)
set_tests_properties(grpc_door PROPERTIES TIMEOUT 900)
