# Everything here needs Go and make; `make test` finds or installs the rest.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 10s
# Packages built and tested at once, and fuzz workers.
JOBS ?= 2
# The modules whose code is checked: the server, and the real API machinery
# that its tests run against. tools/ holds pinned versions and no code.
MODULES := . kubetest

GO ?= go
GOFMT := "$$($(GO) env GOROOT)/bin/gofmt"
STATICCHECK := $(GO) tool -modfile="$(CURDIR)/tools/go.mod" staticcheck
MAKEFLAGS += --no-print-directory

.PHONY: help build run test lint fuzz bench profile c-compiler

help: ## say what there is to make
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

build: ## build bin/seamark
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false \
		-ldflags '-X main.version=$(VERSION)' -o bin/seamark ./cmd/seamark

run: build ## build, and serve examples/ on 127.0.0.1:1053
	bin/seamark serve --manifests examples --listen 127.0.0.1:1053

# Each module is tested even if one before it failed: one run shows everything.
# The fuzz targets look for something new for a moment, without the detector.
test: c-compiler ## run every test of both modules with the race detector
	@$(MAKE) fuzz FUZZTIME=10000x
	@failed=; for m in $(MODULES); do \
		(cd $$m && CGO_ENABLED=1 $(GO) test -race -p $(JOBS) -timeout 30m ./...) || failed="$$failed $$m"; \
	done; test -z "$$failed"

lint: ## gofmt, go vet and staticcheck on both modules
	@files=$$($(GOFMT) -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run gofmt -w on:"; echo "$$files"; exit 1; fi
	@for m in $(MODULES); do (cd $$m && $(GO) vet -p $(JOBS) ./...) || exit 1; done
	@for m in $(MODULES); do (cd $$m && $(STATICCHECK) ./...) || exit 1; done

# go test -list prints a package's targets and then "ok" with its path; go
# fuzzes one target of one package at a time.
fuzz: ## run each fuzz target for FUZZTIME (10s)
	@list=$$($(GO) test -p $(JOBS) -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { t[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, t[i]; n = 0 }' | \
	while read -r pkg target; do \
		echo "$$pkg $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel $(JOBS) "$$pkg" </dev/null || exit 1; \
	done

# What it is told by: QUICK=1, COREDNS=binary, KUBECONFIG=file, BENCH_INSTALL=1,
# and BENCH_FLAGS for all else. A KUBECONFIG that is only in the environment is
# that of somebody's cluster: the benchmark writes into the one it is given.
bench: ## measure against Knot and others; bench/README.md says how
	@mkdir -p bin && $(GO) build -o bin/bench ./bench
	bin/bench $(if $(QUICK),-quick) $(if $(BENCH_INSTALL),-install) \
		$(if $(COREDNS),-coredns '$(COREDNS)') \
		$(if $(filter command line,$(origin KUBECONFIG)),-kubeconfig '$(KUBECONFIG)') $(BENCH_FLAGS)

profile: ## renew cmd/seamark/default.pgo, the profile that the compiler builds the server by
	@mkdir -p bin && $(GO) build -o bin/bench ./bench
	bin/bench -quick -time 3s -peers '' -profile cmd/seamark/default.pgo $(BENCH_FLAGS)

# The race detector is linked by a C compiler and needs the C library's
# headers. The probe is a preprocessor run, because a compiler without headers
# is found on PATH and fails only later.
c-compiler:
	@probe() { echo '#include <stdlib.h>' | $$($(GO) env CC) -E - >/dev/null 2>&1; }; \
	if ! probe; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "no C compiler for the race detector: installing gcc"; \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; \
		fi; \
		probe || { echo "make test needs a C compiler with the C library's headers for Go's race detector: install gcc and libc6-dev (or your system's like), or set CC." >&2; exit 1; }; \
	fi
