# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what there is; CMakePresets.json holds the details.

.DEFAULT_GOAL := help
# Tests wait more than they compute.
JOBS ?= $(shell echo $$((2 * $$(nproc))))
CTEST = ctest --output-on-failure -j $(JOBS) --test-dir

.PHONY: help setup build test simulate chaos run bench-engine bench-redis bench-http bench-doors bench-guard bench-holds bench-growth lint format asan tsan fuzz nightly clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## Install what is missing: Debian packages (root or sudo), and what the tests run
	@tools/setup
	@tools/setup_node
	@tools/setup_proxies

build: setup ## The program at build/release/sluice
	@tools/build release

test: build ## Build and run every test
	@$(CTEST) build/release

simulate: setup ## Histories of faults in virtual time: SEEDS=300 of them, or SEED=7 step by step
	@tools/build release simulate
	@build/release/tests/simulate $(if $(SEED),--seed $(SEED),$(or $(SEEDS),300) $(FIRST))

chaos: build ## Servers that die, hang and fill up under load; SCENARIO=name for one of them
	@tests/chaos/run $(SCENARIO)

# With what the program alone needs, unless there is a build with tests already.
RUN := $(if $(wildcard build/release/build.ninja),release,program)
run: ## Start the service on http://127.0.0.1:8080
	@tools/setup program
	@tools/build $(RUN) sluice_program
	@tools/run build/$(RUN)/sluice

bench-engine: build ## The engine's speed and memory
	@build/release/bench/engine_bench

bench-redis: build ## The Redis store's speed
	@build/release/bench/redis_bench

bench-http: build ## The service's speed: HTTP against nginx, and how rules grow
	@bench/bench-http

bench-doors: build ## The RESP door against redis-server, the gRPC door against grpc++
	@bench/bench-doors

bench-guard: build ## What the guard costs and what its deny cache gains
	@build/release/bench/guard_bench

bench-growth: build ## How a decision's cost grows with keys, rules, connections and more; SVG=FILE draws it
	@bench/growth_bench.py $(if $(SVG),--svg '$(SVG)') build/release/sluice build/release/bench/growth_bench

bench-holds: build ## What holds cost, and that checks without holds cost what they did before
	@bench/bench-holds

lint: setup ## Format, tidy and include-direction checks
	@tools/lint

format: setup ## Format all sources
	@git ls-files -co --exclude-standard '*.h' '*.cc' | xargs clang-format-19 -i

# Of the chaos, what clients do is what the sanitizers are for; outages of Redis take long and are the
# same for them as in the unit tests.
OUTAGES := ^chaos_(.*redis.*|cluster-.*|sentinel-.*|clock-.*|black-hole|client-kill|instances|maxmemory|overload|script-flush)$$
# Left to the long form: what runs other programs than ours, and random histories of decisions, which
# are about numbers.
LONG_ASAN := ^(simulate|simulate_bugs|consumers|documents|documented_codes|envoy|includes_point_down|chaos_(reloads|service-killed|snapshot-damaged)|conformance_test\.All/.*|redis_cluster_test\.RedisClusterFailover\..*|rules_test\.PathServers\..*|lease_test\.Leases\..*)$$

asan: setup ## Address and undefined-behaviour sanitizers; LONG=1 for all tests
	@tools/build asan all_tests
	@$(CTEST) build/asan -E '$(OUTAGES)$(if $(LONG),,|$(LONG_ASAN))'

THREADED := base_test memory_test redis_lookup_test redis_store_test redis_cluster_test guard_test \
	guard_redis_test net_test http_test resp_test grpc_test reload_test service_test telemetry_test
EMPTY :=
tsan: setup ## What runs on several threads, under the thread sanitizer; LONG=1 for all unit tests
	@tools/build tsan $(if $(LONG),all_tests,$(THREADED) sluice_lines)
	@$(CTEST) build/tsan \
		-R '^(lines$$|($(if $(LONG),.*_test,$(subst $(EMPTY) ,|,$(strip $(THREADED)))))\.)'

fuzz: setup ## Every fuzz target, FUZZ_SECONDS=10 of processor time each
	@tools/build fuzz all_fuzz
	@tools/fuzz $(or $(FUZZ_SECONDS),10)

nightly: setup ## All of this in its long form, and the tests 20 times under load; takes hours
	@tools/nightly

clean: ## Remove everything that was built
	@rm -rf build
