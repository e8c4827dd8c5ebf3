# SPDX-License-Identifier: Apache-2.0
# Compiler and linker settings for all of our own targets.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  # Lets ccache cache precompiled headers, too.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${SLUICE_CCACHE})
endif()
find_program(SLUICE_MOLD mold)
if(SLUICE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports out-of-bounds copies in inlined std::string concatenations that do not exist.
  add_compile_options(-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A class with members of types that are local to its file; in joined files these look like
  # headers.
  add_compile_options(-Wno-subobject-linkage)
endif()
if(SLUICE_DEVELOPER)
  add_compile_options(-Werror)
endif()

if(SLUICE_SANITIZE)
  # Lightly optimised, with line numbers only: half the time to build, and still fast enough. GCC
  # then sees less and warns about correct code, so warnings are not errors there.
  add_compile_options(-O1 -g1 -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -Wno-error)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
  if(SLUICE_SANITIZE MATCHES thread)
    # The thread sanitizer does not know fences; loops that run on one thread need none.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
  # Hardening: checked libc calls, stack canaries, no writable relocations, position independence.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -D_GLIBCXX_ASSERTIONS
                      -fstack-protector-strong -fstack-clash-protection)
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported()
