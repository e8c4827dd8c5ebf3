# SPDX-License-Identifier: Apache-2.0
sluice_test(base_test
  SOURCES src/base/base64url_test.cc src/base/hex_test.cc src/base/json_writer_test.cc
          src/base/mailbox_test.cc src/base/parse_json_test.cc src/base/percent_test.cc
          src/base/text_test.cc src/base/yaml_test.cc
  LIBRARIES sluice_json sluice_yaml)
