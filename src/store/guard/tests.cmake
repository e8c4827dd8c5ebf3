# SPDX-License-Identifier: Apache-2.0
sluice_test(guard_test
  SOURCES src/store/guard/breaker_test.cc src/store/guard/fallback_test.cc
          src/store/guard/guard_holds_test.cc src/store/guard/guard_test.cc
          src/store/guard/guarded_store_test.cc src/store/guard/kept_settles_test.cc
          src/store/guard/last_seen_test.cc src/store/guard/ledger_test.cc
          src/store/guard/local_holds_test.cc
          src/store/guard/overload_test.cc src/store/guard/places_test.cc
          src/store/guard/store_call_test.cc src/store/group_test.cc
          tests/conformance/deny_cache_test.cc
  LIBRARIES sluice_guard sluice_test_support)

sluice_test(guard_redis_test
  SOURCES src/store/guard/guard_redis_test.cc
  LIBRARIES sluice_guard sluice_redis_store sluice_test_support)
