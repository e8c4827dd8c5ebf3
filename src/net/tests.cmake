# SPDX-License-Identifier: Apache-2.0
sluice_test(net_text_test
  SOURCES src/net/address_test.cc src/net/forwarded_test.cc src/net/url_test.cc
  LIBRARIES sluice_net_text)
sluice_test(net_test
  SOURCES src/net/access_test.cc src/net/byte_budget_test.cc src/net/listen_address_test.cc
          src/net/listener_test.cc src/net/loops_test.cc
  LIBRARIES sluice_net sluice_test_support)
