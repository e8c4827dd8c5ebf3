# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts in place: the program, the library, its headers, and what
# find_package(sluice) and pkg-config need to find them.
include(CMakePackageConfigHelpers)

install(TARGETS sluice_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS sluice EXPORT sluice ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sluice_with_redis EXPORT sluice-redis
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sluice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(SLUICE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluice NAMESPACE sluice:: FILE sluice-targets.cmake
        DESTINATION ${SLUICE_CMAKE_DIR})
install(EXPORT sluice-redis NAMESPACE sluice:: FILE sluice-redis-targets.cmake
        DESTINATION ${SLUICE_CMAKE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sluice-config.cmake.in sluice-config.cmake
                              INSTALL_DESTINATION ${SLUICE_CMAKE_DIR})
write_basic_package_version_file(sluice-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sluice-config.cmake
              ${PROJECT_BINARY_DIR}/sluice-config-version.cmake
        DESTINATION ${SLUICE_CMAKE_DIR})

file(RELATIVE_PATH SLUICE_PREFIX_FROM_PC
     ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(module sluice sluice-redis)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${module}.pc.in ${module}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${module}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
