# SPDX-License-Identifier: Apache-2.0
add_library(sluice_lease_fleet STATIC lease/fleet.cc)
target_include_directories(sluice_lease_fleet PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(sluice_lease_fleet PRIVATE -O2)
target_link_libraries(sluice_lease_fleet PUBLIC sluice_lease)
sluice_test(lease_test OPTIMISED
  SOURCES src/store/lease/holder_test.cc tests/lease/never_over_test.cc
          src/store/lease/pool_test.cc src/store/lease/server_clock_test.cc
  LIBRARIES sluice_lease_fleet sluice_test_support)
