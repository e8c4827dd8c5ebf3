# SPDX-License-Identifier: Apache-2.0
sluice_test(rules_test
  SOURCES src/rules/allocation_test.cc src/rules/attribute_index_test.cc src/rules/envoy_test.cc
          src/rules/key_test.cc src/rules/parse_test.cc src/rules/path_servers_test.cc
          src/rules/path_test.cc src/rules/path_trie_test.cc src/rules/rls_key_test.cc
          src/rules/rule_set_test.cc
  LIBRARIES sluice_rules sluice_digest)
# It has an operator new of its own. Lightly optimised, GCC does not see that its delete belongs to it.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/rules/allocation_test.cc PROPERTIES
  COMPILE_OPTIONS -Wno-mismatched-new-delete)
