# SPDX-License-Identifier: Apache-2.0
# The baseline of grpc_bench.py, built from the same messages as the gRPC door.
pkg_check_modules(GRPCPP IMPORTED_TARGET grpc++)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
if(GRPCPP_FOUND AND GRPC_CPP_PLUGIN)
  set(rls envoy/service/ratelimit/v3/rls)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/grpc)
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/${rls}.grpc.pb.cc ${out}/${rls}.grpc.pb.h
    COMMAND protoc --proto_path=${PROJECT_SOURCE_DIR}/proto --grpc_out=${out}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${rls}.proto
    DEPENDS ${PROJECT_SOURCE_DIR}/proto/${rls}.proto
    VERBATIM)
  add_executable(grpcpp_server grpcpp_server.cc ${out}/${rls}.grpc.pb.cc)
  set_source_files_properties(${out}/${rls}.grpc.pb.cc PROPERTIES COMPILE_OPTIONS -w)
  target_include_directories(grpcpp_server SYSTEM PRIVATE ${out})
  target_link_libraries(grpcpp_server PRIVATE sluice_proto PkgConfig::GRPCPP)
endif()
