# `make check` after every edit: it needs no NVIDIA compiler. `make test` before a push: it installs the compiler and runs every test.
# `make help` lists the targets.
GO ?= go
export CGO_ENABLED := 0

# Builds and static analysis allocate much and end soon. With a fourth of the garbage collections (GOGC=400) both take 30 % less processor
# time. Where no test runs, a tenth of them takes another 8 % off the compiler and 5 % off staticcheck, which takes 3.1 GB of memory instead
# of 1.4 GB. On a machine with less than that, set GOGC=100: it holds for everything.
ifndef BUILD_GOGC
export BUILD_GOGC := $(or $(GOGC),1000)
endif
export GOGC ?= 400
vet style: export GOGC = $(BUILD_GOGC)
vet style: export GOMEMLIMIT ?= 3GiB

# Of tests that are slow and alike a sample runs, another one for each commit (package internal/rotate). `all` runs all of them.
export ATTUNE_TURN ?= $(shell git rev-parse --short=8 HEAD 2>/dev/null || echo 0)

# Packages whose goroutines share memory, and users of the simulator; they are tested under the race detector too.
RACE := ./internal/sim ./internal/cases ./internal/device/sim ./internal/device/isolate ./internal/ledger ./internal/oracle \
	./internal/peer ./internal/terminal ./internal/tensor ./sdpa

# Slow tests of these packages in which the detector has nothing to find, and which `make unit` runs. The simulator runs a single block, or
# blocks that communicate, on one goroutine. TestGPUOnSimulator has the goroutines of other launches of package sdpa, and
# TestMemoryWatch that of the memory limits. Processes share no memory.
RACE_SKIP := ^TestCluster(Copies|Init|Memory)$$|^Test(Deadlocks|ExpNonPositive|IndependentLanes|TablesFit|Timeouts|Wgmma|WgmmaDefects)$$
RACE_SKIP := $(RACE_SKIP)|^TestGPU(Cards|Copies|Failures|Limits|Options|Workspace)$$
RACE_SKIP := $(RACE_SKIP)|^Test(MemoryOfSimulation|ShadowLimit)$$
RACE_SKIP := $(RACE_SKIP)|^TestExtremeTensorMaps$$|^Test(DamageIsNamed|DamagedIndexIsRebuilt|KilledOnFirstRun)$$|^TestProcesses

# Packages that run whole kernels, without coverage: other packages reach the same statements. They start with the longest, so that the
# cores are busy to the end, and run four tests at a time: tests of the command line wait for other processes.
WHOLE := ./kernels/... ./cmd/attune

# These tests have the coverage of the simulator. In all others it is not instrumented, which would slow it down by half.
SIMULATOR := ./internal/sim/... ./internal/cases ./internal/device/sim ./internal/exec

# A limit for tests that hang. Go's own, 10 minutes, is too short for kernels/ on two cores that other work shares.
TIMEOUT := -timeout 40m

# Packages that have assembly, and those that say whether it is right.
ASSEMBLY := ./internal/sim/... ./internal/cases ./internal/device/sim ./internal/tensor ./sdpa

# The least coverage of internal/... by tests that need no GPU. What only a GPU can reach is left out.
COVERAGE := 97
NEEDS_GPU := internal/device/cuda/

# The Python of references in tests: ATTUNE_PYTHON or python3 if they have numpy, else one that `make tools` sets up. The variable is
# expanded for each recipe, so that `make test` finds what `make tools` has made.
NUMPY := numpy==2.2.6
ifndef ATTUNE_PYTHON
export ATTUNE_PYTHON = $(shell test -x .tools/python/bin/python3 && echo $(CURDIR)/.tools/python/bin/python3)
endif

# Wheels for glibc 2.17 and later (manylinux2014), and what builds and checks them.
PLATFORMS := manylinux_2_17_x86_64 manylinux_2_17_aarch64
WHEEL_TOOLS := ziglang==0.15.2 auditwheel==6.8.2 packaging==26.3 pyelftools==0.33 setuptools==80.9.0

# pip downloads setuptools to build a package, unless this Python has one that knows the fields of pyproject.toml.
OWN_SETUPTOOLS = $(shell python3 -c 'import setuptools; exit(int(setuptools.__version__.split(".")[0]) < 77)' 2>/dev/null && \
	echo --no-build-isolation)

# The version of a release, from the source unless another is given.
VERSION ?= $(shell sed -n 's/^var release = "\(.*\)"/\1/p' cmd/attune/version.go)

# What `attune version` reports. The Go tool records a commit too, but not in a git worktree, and not with GOFLAGS=-buildvcs=false.
STAMP = -X main.release=$(VERSION) -X main.branch=$(shell git rev-parse --abbrev-ref HEAD) -X main.commit=$(shell git rev-parse HEAD) \
	-X main.date=$(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ) \
	-X main.dirty=$(shell test -z "$$(git status --porcelain --untracked-files=no)" && echo false || echo true)

START := $(shell date +%s)

.PHONY: help build release check test verify tools compiler machine numpy vet style format unit whole simulator rest coverage plain race bench fuzz hostile mutants ship docs picture wheel local-wheel wheel-tools wheel-sources gpu-tests clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the program, with the revision it is built from
	$(GO) build -buildvcs=false -ldflags "$(STAMP)" -o bin/attune ./cmd/attune

# The binaries have no cgo and no other libraries than the loader of libc, with which they open the CUDA driver (dlopen).
release: ## binaries without cgo for linux amd64 and arm64, with checksums, in dist/
	rm -rf dist
	mkdir -p dist
	@for arch in amd64 arm64; do \
		echo "dist/attune-$(VERSION)-linux-$$arch"; \
		GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags "-s -w $(STAMP)" \
			-o dist/attune-$(VERSION)-linux-$$arch ./cmd/attune || exit 1; \
	done
	cd dist && sha256sum attune-* > SHA256SUMS
	cat dist/SHA256SUMS

check: format ## format and the short tests: no network, no NVIDIA compiler; the command line only in part
	$(GO) test -short -vet=off $$($(GO) list ./... | grep -v /cmd/attune)
	$(GO) test -short -vet=off -run 'Help|Commands|Complet|Fit|Links|Readme|Results|Progress|Version' ./cmd/attune

# `make test` builds without debug information (DWARF), which no test reads: stack traces come from other tables. SQLite and the NATS server,
# the largest packages, are not optimised: tests spend little time in them. Both together take a fifth off the processor time of `go vet`
# with an empty cache. These builds share nothing in Go's build cache with those of a plain `go test`.
NO_DEBUG := -dwarf=false
UNOPTIMISED := $(NO_DEBUG) -N -l
TEST_GOFLAGS := -gcflags=all=$(NO_DEBUG) '-gcflags=modernc.org/...=$(UNOPTIMISED)' \
	'-gcflags=github.com/nats-io/nats-server/...=$(UNOPTIMISED)'

# `go vet` fills the build cache, so that no two targets compile the same package; meanwhile the machine's packages are downloaded. Then
# several targets run at a time: some wait for the network, others for processes or for their last package. AFTER is what the tests wait for.
test: export ATTUNE_BROWSER := required
test: export GOFLAGS := $(shell $(GO) env GOFLAGS) $(TEST_GOFLAGS)
test: ## everything that continuous integration runs
	@$(MAKE) -s -j2 --output-sync=target vet machine
	@$(MAKE) -s -j3 --output-sync=target AFTER=compiler compiler whole style race rest simulator plain
	@$(MAKE) -s coverage
	@seconds=$$(( $$(date +%s) - $(START) )); echo "make test: passed in $$((seconds / 60)) min $$((seconds % 60)) s"

tools: machine compiler ## what the tests need beside Go: C++ and NVIDIA's compilers, Chromium, and Python with numpy

compiler:
	$(GO) run ./cmd/attune toolchain install

machine:
	@command -v g++ >/dev/null || { apt-get update -qq && apt-get install -y -qq g++; } || \
		{ echo "the tests need g++, and it could not be installed" >&2; exit 1; }
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } || \
		{ echo "the tests of the dashboard need Chromium, and it could not be installed" >&2; exit 1; }
	@"$${ATTUNE_PYTHON:-python3}" -c 'import numpy' 2>/dev/null || $(MAKE) -s numpy || \
		{ echo "no numpy: the tests of references in Python are skipped" >&2; test -z "$$CI"; }

numpy: # a Python of its own: that of the machine may refuse packages
	@command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq python3 python3-venv; }
	rm -rf .tools/python
	python3 -m venv .tools/python
	.tools/python/bin/python3 -m pip install -q --disable-pip-version-check '$(NUMPY)'

format: ## fail if gofumpt would change a file
	@unformatted=$$($(GO) tool gofumpt -l .); test -z "$$unformatted" || { echo "not gofumpt-clean:"; echo "$$unformatted"; exit 1; }

vet: ## go vet; the tests do not repeat it
	$(GO) vet ./...

style: format ## format, static analysis, module file
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff

unit: ## all tests; those that run whole kernels without coverage
	@$(MAKE) -s -j2 --output-sync=target rest whole simulator

AFTER :=
rest whole race simulator plain: $(AFTER)

whole:
	$(GO) test $(TIMEOUT) -parallel 4 -vet=off $(WHOLE)

simulator:
	$(GO) test $(TIMEOUT) -vet=off -coverprofile=coverage.sim.out -coverpkg=./internal/... $(SIMULATOR)

rest:
	$(GO) test $(TIMEOUT) -vet=off -coverprofile=coverage.out -coverpkg=$$($(GO) list ./internal/... | grep -v -e /internal/sim -e /internal/exec | paste -sd,) \
		./internal/lab ./internal/toolchain $(filter-out $(shell $(GO) list $(WHOLE) $(SIMULATOR)),$(shell $(GO) list ./...))

coverage: ## the coverage of the last `make unit`; fails below COVERAGE percent
	@{ cat coverage.out; tail -n +2 coverage.sim.out; } | grep -v '$(NEEDS_GPU)' > coverage.nogpu.out
	@$(GO) tool cover -func=coverage.nogpu.out | awk -v least=$(COVERAGE) \
		'/^total:/ { print "coverage of internal/... without a GPU: " $$3; if ($$3 + 0 < least) { print "want at least " least " %"; exit 1 } }'

plain: ## the simulator, the inputs and attention as they are on processors without AVX2: no assembly
	GODEBUG=cpu.avx2=off $(GO) test $(TIMEOUT) -vet=off -count=1 -short $(ASSEMBLY)

# The detector stays in all packages: the linker takes a generic function of the standard library from any of them, and one without the
# detector hides what orders two accesses. The tests need neither the NATS server nor Chromium's client and are built without them.
RACE_FLAGS := $(TIMEOUT) -vet=off -race -tags noserver,nobrowser -gcflags=all=$(NO_DEBUG) '-gcflags=modernc.org/...=$(UNOPTIMISED)'

# A program under the detector sleeps for a second before it ends, and every program that the tests start has a supervisor.
race: export GORACE := atexit_sleep_ms=0
race: ## the packages that share memory, under the race detector
	CGO_ENABLED=1 $(GO) test $(RACE_FLAGS) -short -skip '$(RACE_SKIP)' $(RACE)
	CGO_ENABLED=1 $(GO) test $(RACE_FLAGS) -run 'Concurrent|VerificationIsRemembered' ./internal/toolchain
	CGO_ENABLED=1 $(GO) test $(RACE_FLAGS) -short -run '^Test(LiveSearch|OneJob|StartRun|Malformed|ServerEnds|CancelByAPI)' ./internal/web
	CGO_ENABLED=1 $(GO) test $(RACE_FLAGS) -short -run '^TestRun|^TestBenchIsRecorded$$' ./internal/lab

verify: export ATTUNE_TURN := all
verify: ## every test, with all variants of the kernels and all recorded outputs; then CI tests a sample of them until they change
	$(GO) test $(TIMEOUT) ./kernels -all
	$(GO) test $(TIMEOUT) ./internal/device/sim -run TestRecordedOutputs -all
	$(GO) test $(TIMEOUT) -vet=off ./cmd/attune ./clib ./sdpa ./internal/form ./internal/lab ./internal/propose ./internal/ptx ./internal/toolchain ./internal/tuner
	$(GO) test ./kernels -run TestMarkVerified -mark-verified

bench: ## benchmarks
	$(GO) test -run '^$$' -bench . ./...

fuzz: ## every fuzz target for FUZZTIME (default 20s)
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-20s} $$package || exit 1; \
		done; \
	done

hostile: ## every hostile input of the list, with the memory and the time of each; needs the compiler and numpy
	$(GO) test -timeout 1h -v -count=1 -run '^TestHostile$$' ./cmd/attune -hostile

mutants: ## the simulator on MUTANTS (default 20000) mutated cases: no panic, no hang, bounded memory
	$(GO) test -timeout 3h -v -run '^TestMutants$$' ./internal/cases -largest 20000 -mutants $${MUTANTS:-20000}

ship: ## PTX and records of the stages and the examples again, after the kernels' sources have changed
	$(GO) run ./kernels/ship
	$(GO) run ./examples/matmul

docs: ## rewrite the outputs and generated tables of README.md and docs/, after a change of results/ or of an output
	$(GO) run ./docs/generate
	$(GO) test -count=1 -run '^TestDocs' ./cmd/attune -update

picture: ## the picture of the dashboard in the README, after a change of its pages or of results/
	$(GO) test ./internal/web -count=1 -run '^TestBrowserScreenshot$$' -screenshot $(CURDIR)/docs/images/serve.png

# The bytes of a wheel depend on the sources, these packages, Python's headers and its zlib; its times are those of the commit.
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
wheel: export ZIG_GLOBAL_CACHE_DIR = $(CURDIR)/.tools/zig
wheel: wheel-tools wheel-sources ## the Python package with the C library inside, for x86_64 and aarch64, in dist/
	@umask 022; for platform in $(PLATFORMS); do \
		rm -rf python/build; \
		ATTUNE_PLATFORM=$$platform .tools/wheel/bin/python3 -m pip wheel -q --no-deps --no-build-isolation -w dist ./python || exit 1; \
		.tools/wheel/bin/auditwheel show --json dist/attune-*-$$platform.whl > dist/audit.json || exit 1; \
		grep -q "\"overall_tag\": \"$$platform\"" dist/audit.json || \
			{ cat dist/audit.json; echo "auditwheel does not take the wheel for $$platform" >&2; exit 1; }; \
		rm dist/audit.json; \
	done
	$(GO) test -count=1 -run '^TestWheels$$' ./clib
	cd dist && sha256sum attune-*.whl && du -b attune-*.whl

local-wheel: wheel-sources ## the same for this machine only, by its C compiler; without Zig
	python3 -m pip wheel -q --no-deps $(OWN_SETUPTOOLS) -w dist ./python
	cd dist && du -b attune-*.whl

wheel-tools: # Zig, which is a C compiler for all processors and versions of glibc, and the audit: in a Python of their own
	@test "$$(cat .tools/wheel/pins 2>/dev/null)" = '$(WHEEL_TOOLS)' || { \
		rm -rf .tools/wheel && python3 -m venv .tools/wheel && \
		.tools/wheel/bin/python3 -m pip install -q --disable-pip-version-check $(WHEEL_TOOLS) && \
		echo '$(WHEEL_TOOLS)' > .tools/wheel/pins; } || { \
		echo "make wheel: .tools/wheel could not be set up; it needs python3 with venv, and $(WHEEL_TOOLS) from PyPI" >&2; \
		echo "without network, give pip a folder that has them: PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER make wheel" >&2; \
		echo "or build for this machine only, by its C compiler: make local-wheel" >&2; exit 1; }

wheel-sources:
	rm -rf python/csrc python/build dist/attune-*.whl
	$(GO) run ./cmd/attune export stage7 --with bf16,lse -o python/csrc

gpu-tests: ## test binaries for a machine with a GPU and no Go
	mkdir -p bin
	$(GO) test -c -o bin/cuda.test ./internal/device/cuda
	$(GO) test -c -o bin/cases.test ./internal/cases # to be run in internal/cases
	$(GO) test -c -o bin/lab.test ./internal/lab # -test.run OnGPU, in internal/lab
	$(GO) test -c -o bin/clib.test ./clib # -test.run OnGPU, in clib; needs gcc
	$(GO) test -c -o bin/sdpa.test ./sdpa # -test.run OnGPU

clean:
	rm -rf bin dist .tools coverage.out coverage.sim.out coverage.nogpu.out
