# SPDX-License-Identifier: Apache-2.0
find_package(ZLIB REQUIRED)

sluice_test(grpc_session_test
  SOURCES src/grpc/session_test.cc tests/support/h2_client.cc
  LIBRARIES sluice_grpc PkgConfig::NGHTTP2 ZLIB::ZLIB)
target_include_directories(grpc_session_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)

sluice_test(grpc_rls_test
  SOURCES src/grpc/rls_test.cc src/grpc/services_test.cc tests/support/h2_client.cc
  LIBRARIES sluice_grpc sluice_memory PkgConfig::NGHTTP2 ZLIB::ZLIB)
target_include_directories(grpc_rls_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
add_executable(grpc_door ${PROJECT_SOURCE_DIR}/tests/support/grpc_door.cc)
target_include_directories(grpc_door PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(grpc_door PRIVATE sluice_grpc sluice_memory)
