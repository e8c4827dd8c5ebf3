# SPDX-License-Identifier: Apache-2.0
find_package(ZLIB REQUIRED)

sluice_test(grpc_session_test
  SOURCES src/grpc/session_test.cc tests/support/h2_client.cc
  LIBRARIES sluice_grpc PkgConfig::NGHTTP2 ZLIB::ZLIB)
target_include_directories(grpc_session_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
