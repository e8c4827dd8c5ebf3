# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what there is; CMakePresets.json holds the details.

.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)

.PHONY: help setup build test chaos run bench-engine bench-redis bench-http bench-doors bench-guard lint format asan tsan fuzz clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## Install what is missing: Debian packages (root or sudo), and what the tests run
	@tools/setup
	@tools/setup_node
	@tools/setup_proxies

build: setup ## The program at build/release/sluice
	@tools/build release

test: build ## Build and run every test
	@ctest --test-dir build/release --output-on-failure -j $(JOBS)

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

lint: setup ## Format, tidy and include-direction checks
	@tools/lint

format: setup ## Format all sources
	@git ls-files -co --exclude-standard '*.h' '*.cc' | xargs clang-format-19 -i

# Of the chaos, what clients do is what the sanitizers are for; outages of Redis take long and are the
# same for them as in the unit tests.
OUTAGES := ^chaos_(.*redis.*|cluster-.*|sentinel-.*|clock-.*|black-hole|client-kill|instances|maxmemory|overload|script-flush)$$

asan: setup ## The tests under the address and undefined-behaviour sanitizers
	@tools/build asan all_tests
	@ctest --test-dir build/asan --output-on-failure -j $(JOBS) -E '$(OUTAGES)'

# Not grpc_test: under this sanitizer protobuf's headers do not fit Debian's library.
THREADED := memory_test redis_lookup_test redis_store_test redis_cluster_test guard_test \
	guard_redis_test net_test http_test resp_test reload_test telemetry_test
EMPTY :=
tsan: setup ## What runs on several threads, under the thread sanitizer
	@tools/build tsan $(THREADED)
	@ctest --test-dir build/tsan --output-on-failure -j $(JOBS) \
		-R '^($(subst $(EMPTY) ,|,$(strip $(THREADED))))\.'

fuzz: setup ## Every fuzz target, FUZZ_SECONDS=10 each
	@tools/build fuzz all_fuzz
	@tools/fuzz $(or $(FUZZ_SECONDS),10)

clean: ## Remove everything that was built
	@rm -rf build
