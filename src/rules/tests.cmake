# SPDX-License-Identifier: Apache-2.0
sluice_test(rules_test
  SOURCES src/rules/allocation_test.cc src/rules/attribute_index_test.cc src/rules/envoy_test.cc
          src/rules/key_test.cc src/rules/parse_test.cc src/rules/path_servers_test.cc
          src/rules/path_test.cc src/rules/path_trie_test.cc src/rules/rls_key_test.cc
          src/rules/rule_set_test.cc
  LIBRARIES sluice_rules sluice_digest)
