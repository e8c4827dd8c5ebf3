# SPDX-License-Identifier: Apache-2.0
sluice_test(daemon_test SOURCES src/daemon/outage_test.cc LIBRARIES sluice_daemon)
