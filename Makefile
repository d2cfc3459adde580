# Everything here needs Go and make. `make test` installs the rest or names it.

# The version is that of the tag v1.2.3, 1.2.3-4-gCOMMIT four commits later, and
# 0.0.0-gCOMMIT without a tag.
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null)),0.0.0-$(or $(addprefix g,$(shell git rev-parse --short HEAD 2>/dev/null)),dev))
DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# PGO=auto builds with the profile cmd/seamark/default.pgo, as releases are built. It
# compiles every package once more, so it is off by default. With -trimpath a package is compiled
# once for all checkouts, wherever they are.
PGO ?= off
export GOFLAGS := $(GOFLAGS) -trimpath -pgo=$(PGO)
FUZZTIME ?= 10s
# Packages built and tested at once, and fuzz workers.
JOBS ?= 2
# The modules whose code is checked: the server, the benchmark, the tests against the API
# machinery, the programs for releases, and the cluster for a laboratory.
MODULES := . bench kubetest tools tools/cluster

GO ?= go
GOFMT := "$$($(GO) env GOROOT)/bin/gofmt"
TOOL := $(GO) tool -modfile="$(CURDIR)/tools/go.mod"
MAKEFLAGS += --no-print-directory

# The results of the stages of `make test`, for its summary.
RESULTS := $(CURDIR)/bin/test
# test-stage NAME,DIRECTORY,GO TEST ARGUMENTS: with -count=1 where tests build programs from the
# source of another module, whose changes Go's cache of results does not see. A test binary without debug
# information links in half the time.
test-stage = cd $(2) && $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
	--hide-summary all --jsonfile $(RESULTS)/$(1).json -- -p $(JOBS) -timeout 30m -ldflags=-w $(3)

.PHONY: help programs quick bounds build run demo cluster cluster-down conformance image release sign publish vulncheck pin-actions test test-server test-api test-cost test-bench test-fuzz test-image test-release test-chart test-cluster test-summary test-coredns test-externaldns lint fuzz fuzz-package soak soak-day soak-restart bench profile c-compiler

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile

build: ## build bin/seamark (PGO=auto for a release)
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -v -tags grpcnotrace -trimpath -buildvcs=false \
		-ldflags '-X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)' -o bin/seamark ./cmd/seamark

run: ## build, and serve examples/ on 127.0.0.1:1053
	@echo "== building bin/seamark: seconds, or about a minute and a half the first time; the packages are listed"
	@$(MAKE) build
	@echo "== the web page: http://localhost:8053, and bin/seamark status, top, tail"
	bin/seamark serve --manifests examples --listen 127.0.0.1:1053 --admin localhost:8053

demo: build ## serve the shop on 127.0.0.1:1053 with traffic and troubles, for a look at the web page
	CGO_ENABLED=0 $(GO) build -o bin/demo ./test/demo
	@bin/demo

# Options: KUBERNETES=version, PROXY=nftables, DUAL_STACK=1, NODES=3, KWOK=100, PORT=16443, PATIENCE=3m.
cluster: ## as root, start a real Kubernetes cluster in namespaces of this machine; see tools/cluster/README.md
	@mkdir -p bin/cluster && cd tools/cluster && CGO_ENABLED=0 $(GO) build -o ../../bin/cluster/cluster .
	@bin/cluster/cluster up $(addprefix -kubernetes ,$(KUBERNETES)) $(addprefix -proxy ,$(PROXY)) \
		$(if $(DUAL_STACK),-dual-stack) $(addprefix -nodes ,$(NODES)) $(addprefix -kwok ,$(KWOK)) $(addprefix -port ,$(PORT)) \
		$(addprefix -patience ,$(PATIENCE))

# Options: those of cluster, and SUITES="dns services", ONLY=seamark, FOCUS=regexp.
conformance: ## as root, run Kubernetes' DNS tests on a real cluster, with CoreDNS and with Seamark; see docs/reference/conformance.md
	@mkdir -p bin/cluster && cd tools/cluster && CGO_ENABLED=0 $(GO) build -o ../../bin/cluster/cluster .
	@bin/cluster/cluster conformance $(addprefix -kubernetes ,$(KUBERNETES)) $(addprefix -proxy ,$(PROXY)) \
		$(if $(DUAL_STACK),-dual-stack) $(addprefix -nodes ,$(NODES)) $(addprefix -kwok ,$(KWOK)) $(addprefix -port ,$(PORT)) \
		$(addprefix -patience ,$(PATIENCE)) $(addprefix -only ,$(ONLY)) $(if $(SUITES),-suites '$(SUITES)') $(if $(FOCUS),-focus '$(FOCUS)')

# The programs take half an hour with empty caches, and two minutes with Go's packages of former builds: then
# the tests run. What is built stays in the caches.
BUILD_SECONDS ?= 240
test-cluster: # as root, Kubernetes' [Conformance] tests of DNS on a real cluster, where the programs are soon built
	@echo "== Kubernetes' conformance tests of DNS: about 2 minutes, if their programs are in Go's caches"
	@mkdir -p bin/cluster && cd tools/cluster && CGO_ENABLED=0 $(GO) build -o ../../bin/cluster/cluster .
	@timeout $(BUILD_SECONDS) bin/cluster/cluster programs; status=$$?; case $$status in \
	0) $(MAKE) conformance ONLY=seamark SUITES=dns FOCUS='\[Conformance\]' PATIENCE=10m ;; \
	77) echo "not run: this machine cannot have a cluster" ;; \
	124) echo "not run: the programs were not built within $(BUILD_SECONDS) s; make cluster builds them" ;; \
	*) exit $$status ;; \
	esac

cluster-down: ## end the cluster, and remove everything that it has made but its programs
	@mkdir -p bin/cluster && cd tools/cluster && CGO_ENABLED=0 $(GO) build -o ../../bin/cluster/cluster .
	@bin/cluster/cluster down

image: PGO = auto
image: ## build the container image in bin/image, for six PLATFORMS, without a container daemon
	cd tools && $(GO) run ./image -source .. -output ../bin/image $(addprefix -platforms ,$(PLATFORMS)) \
		-version $(VERSION) $(addprefix -commit ,$(COMMIT)) $(addprefix -date ,$(DATE)) -pgo $(PGO)

# What a release is in: an absolute path, or one from the root.
DIST ?= dist
# In a workflow of GitHub, the workflow and its run are the builder that the provenance names.
BUILDER := $(if $(GITHUB_WORKFLOW_REF),-builder $(GITHUB_SERVER_URL)/$(GITHUB_WORKFLOW_REF) \
	-invocation $(GITHUB_SERVER_URL)/$(GITHUB_REPOSITORY)/actions/runs/$(GITHUB_RUN_ID)/attempts/$(GITHUB_RUN_ATTEMPT))
release: PGO = auto
release: ## build archives, packages, the image, the chart, checksums and provenance in dist, for ten PLATFORMS
	cd tools && $(GO) run ./release -source .. -output $(abspath $(DIST)) $(addprefix -platforms ,$(PLATFORMS)) $(BUILDER) \
		-version $(VERSION) $(addprefix -commit ,$(COMMIT)) $(addprefix -date ,$(DATE)) -pgo $(PGO)

# cosign has a module of its own, so that no other program gets its 300 modules.
bin/cosign: tools/sign/go.mod
	@echo "== building bin/cosign: about five minutes on two cores the first time; the packages are listed"
	cd tools/sign && CGO_ENABLED=0 $(GO) build -v -trimpath -buildvcs=false -o ../../bin/cosign github.com/sigstore/cosign/v3/cmd/cosign

# With KEY, the key of `cosign generate-key-pair`, nothing but the registry is contacted. Without it
# cosign proves with a token of the workflow which workflow signs, in the public log of Sigstore.
SIGNER := --yes $(if $(KEY),--key $(KEY) --signing-config tools/sign/no-services.json --trusted-root tools/sign/no-root.json)
sign: bin/cosign ## sign the checksums and the provenance in dist, with KEY or as a workflow
	bin/cosign sign-blob $(SIGNER) --bundle $(DIST)/SHA256SUMS.sigstore.json $(DIST)/SHA256SUMS
	bin/cosign attest-blob $(SIGNER) --statement $(DIST)/provenance.intoto.json --bundle $(DIST)/provenance.sigstore.json

publish: bin/cosign ## push the image and the chart in dist to REGISTRY, and sign them there as make sign does
	@mkdir -p bin
	cd tools && $(GO) run ./publish -dist $(abspath $(DIST)) $(addprefix -registry ,$(REGISTRY)) -version $(VERSION) -predicate ../bin/predicate.json
	@for image in $$(cat $(DIST)/images.txt); do echo "== signing $(REGISTRY)/$$image"; \
		bin/cosign sign --recursive $(SIGNER) "$(REGISTRY)/$$image" && \
		bin/cosign attest $(SIGNER) --type slsaprovenance1 --predicate bin/predicate.json "$(REGISTRY)/$$image" || exit 1; \
	done

# The list of programs is package test/debian. The tests that need a missing one are skipped;
# with SEAMARK_TEST_COMPLETE, which .ci/run sets, they fail.
programs: ## as root on Debian, install the programs that the tests run; elsewhere print those that are missing
	@mkdir -p bin && CGO_ENABLED=0 $(GO) build -o bin/programs ./test/debian/install
	@bin/programs .

# The loop while you work: tests that take more than a second are skipped, and a check finds
# those that do not say so.
quick: ## run the tests of every module that take less than a second, without the race detector
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@export CGO_ENABLED=0; failed=; files=; \
	for m in $(MODULES); do \
		name=$$(echo $$m | tr / -); [ $$m != . ] || name=server; \
		($(call test-stage,$$name,$$m,-short ./...)) || failed=1; \
		files="$$files $$m=$(RESULTS)/$$name.json"; \
	done; \
	$(GO) run ./test/slow $$files && test -z "$$failed"

# stage-TARGET makes a target and prints how long it took.
stage-%:
	@start=$$(date +%s); $(MAKE) $*; status=$$?; echo "== $*: $$(($$(date +%s) - start)) s"; exit $$status

# Every stage runs even if another one failed: one run shows everything. Two run at once, since much of them
# is waiting for real time, in the tests of a node and of an API server above all.
test: c-compiler programs ## run every test, and end with a summary
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@failed=; \
	$(MAKE) -k stage-test-api stage-test-cost & others=$$!; \
	$(MAKE) -k stage-test-server stage-test-fuzz stage-test-bench || failed="$$failed test-server, test-fuzz or test-bench"; \
	wait $$others || failed="$$failed test-api or test-cost"; \
	$(MAKE) test-summary; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

# The tests of these packages drive the program in processes of its own. The race detector triples the cost
# of a start, and what it reports in a process that a test kills fails no test. They have it in make soak; so
# have the program's processes in test-api, and the handlers, listeners and commands in their packages' tests.
DRIVERS := ./cmd ./test/demo ./test/node ./test/process
BUT_DRIVERS = $(GO) list ./... | grep -vxF "$$($(GO) list $(DRIVERS))"
# A test binary with the race detector would sleep for a second at its end.
GORACE := atexit_sleep_ms=0

# The stages leave vet to make lint and make quick.
test-server: # the server
	@mkdir -p $(RESULTS)
	@echo "== the server's tests, with the race detector"
	@export CGO_ENABLED=1 GORACE=$(GORACE); packages=$$($(BUT_DRIVERS)); \
	$(GO) build -race -v -p $(JOBS) $$packages && $(call test-stage,server,.,-vet=off -race $$packages)

# Without the race detector, too, the tests of files that use package race: they compute in one goroutine, ten
# times as fast so, or compare memory, which the detector changes.
RACE := race\.\(Enabled\|Fewer\|Skip\)
test-cost: # the tests that run without the race detector
	@mkdir -p $(RESULTS)
	@echo "== the tests without the race detector"
	@failed=; \
	files=$$(git ls-files '*_test.go' | xargs grep -l '$(RACE)'); \
	tests=$$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $$files | paste -sd '|'); \
	(export CGO_ENABLED=0; $(call test-stage,drivers,.,-vet=off $(DRIVERS))) || failed=1; \
	(export CGO_ENABLED=0; $(call test-stage,cost,.,-vet=off -run "^($$tests)\$$" \
		$$(printf './%s\n' $$files | xargs -n1 dirname | sort -u | grep -vxF "$$(printf '%s\n' $(DRIVERS))"))) || failed=1; \
	test -z "$$failed"

test-bench: # the benchmark and the laboratory's cluster
	@mkdir -p $(RESULTS)
	@echo "== the benchmark and the laboratory's cluster"
	@failed=; export CGO_ENABLED=1; \
	($(call test-stage,bench,bench,-vet=off -count=1 ./...)) || failed=1; \
	($(call test-stage,cluster,tools/cluster,-vet=off -race .)) || failed=1; \
	test -z "$$failed"

# The API machinery (some 1,400 packages) runs in a process of its own, built once
# and without the race detector.
test-api: # the server against the real API machinery and etcd
	@mkdir -p bin $(RESULTS)
	@echo "== the tests against the Kubernetes API machinery and etcd"
	@cd kubetest && CGO_ENABLED=0 $(GO) build -v -p $(JOBS) -o ../bin/kubetest-api ./cmd/api
	@failed=; \
	(export CGO_ENABLED=1 GORACE=$(GORACE); $(call test-stage,kubetest,kubetest,-vet=off -count=1 -race . ./certs ./control ./gate)) || failed=1; \
	(export CGO_ENABLED=0; $(call test-stage,machinery,kubetest,-vet=off ./machinery ./cmd/...)) || failed=1; \
	test -z "$$failed"

test-fuzz: # each fuzz target, briefly
	@echo "== fuzzing, 10,000 inputs for each target"
	@$(MAKE) fuzz FUZZTIME=10000x

test-image: ## build the image of every platform twice, and query the binaries under qemu-user
	@mkdir -p $(RESULTS)
	@echo "== the image: about 3 minutes, or 10 the first time; the binaries of other platforms need qemu-user-static"
	@export CGO_ENABLED=0; $(call test-stage,image,tools,-count=1 ./image)

test-release: bin/cosign ## build archives and packages twice; install, run, upgrade and remove the Debian package
	@mkdir -p $(RESULTS)
	@echo "== the release: about 2 minutes, or 6 the first time; the packages need root, systemd and rpm"
	@export CGO_ENABLED=0; $(call test-stage,release,tools,-count=1 ./release ./publish)

test-chart: ## render the Helm chart for many values, and serve and query what it installs; compare the dashboard and the table of CoreDNS's options; read the workflows
	@mkdir -p $(RESULTS)
	@echo "== the Helm chart: about a minute, or 6 the first time"
	@export CGO_ENABLED=0; $(call test-stage,chart,tools,-count=1 ./actions ./chart ./coredns ./dashboard)

# gotestsum ends with the skipped tests, their reasons, and the counts.
test-summary:
	@echo "== summary"
	@$(TOOL) gotestsum --format none --hide-summary output --raw-command -- cat $(RESULTS)/*.json

lint: ## gofmt, go vet and staticcheck on every module; go vet of the server for macOS and Windows
	@files=$$($(GOFMT) -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run gofmt -w on:"; echo "$$files"; exit 1; fi
	@for m in $(MODULES); do echo "== go vet and staticcheck: module $$m"; \
		(cd $$m && CGO_ENABLED=0 $(GO) vet -p $(JOBS) ./... && CGO_ENABLED=0 $(TOOL) staticcheck ./...) || exit 1; done
	@for os in darwin windows; do echo "== go vet for $$os"; GOOS=$$os CGO_ENABLED=0 $(GO) vet -p $(JOBS) ./... || exit 1; done

# govulncheck has status 3 for a vulnerability that the code reaches, and 1 for an error.
vulncheck: ## compare every module's code with Go's database of vulnerabilities, or with that at GOVULNDB
	@for m in $(MODULES); do echo "== govulncheck: module $$m"; \
		(cd $$m && CGO_ENABLED=0 $(TOOL) govulncheck $(addprefix -db ,$(GOVULNDB)) ./...); status=$$?; \
		case $$status in 0) ;; \
		3) failed=1 ;; \
		*) echo "make vulncheck: $$m was not checked: if the database cannot be reached, set GOVULNDB to a copy of it" >&2; exit 1 ;; \
		esac; \
	done; test -z "$$failed"

pin-actions: ## write commits in place of the tags of actions in .github/workflows; needs github.com
	cd tools && $(GO) run ./actions

# go test -fuzz would compile all dependencies once more, for coverage that no
# target needs. -d=libfuzzer, its flag of the compiler, is given for our packages.
# All packages except programs, which do not link with it, are compiled first: otherwise two tests at once
# would each compile what they share. JOBS packages at once, each with one worker: a target is mostly its start.
FUZZFLAGS := -gcflags='github.com/seamark/seamark/...=-d=libfuzzer'
fuzz: ## run each fuzz target for FUZZTIME (10s)
	@$(GO) list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./... | CGO_ENABLED=0 xargs $(GO) build -p $(JOBS) $(FUZZFLAGS)
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | xargs -P $(JOBS) -I{} $(MAKE) fuzz-package PACKAGE={}

fuzz-package: # the fuzz targets of PACKAGE
	@out="$(CURDIR)/bin/fuzz/$(PACKAGE)"; mkdir -p "$$out"; \
	CGO_ENABLED=0 $(GO) test -c -ldflags=-w $(FUZZFLAGS) -o "$$out/test" $(PACKAGE) || exit 1; \
	cd $(PACKAGE); \
	for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' *_test.go); do \
		echo "fuzzing $(PACKAGE) $$target"; \
		"$$out/test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 10x \
			-test.fuzzcachedir "$$out/cache" -test.parallel 1 </dev/null >"$$out/log" 2>&1 || { cat "$$out/log"; exit 1; }; \
	done; \
	rm "$$out/test"

# A failure logs the seed; SOAK_SEED=N repeats its faults. The simulations of make test
# have the seeds from 0 on; these have those from FIRST on.
SOAK ?= 10m
SEEDS ?= 5000
FIRST ?= 200
soak: c-compiler bounds ## check bounds, simulate SEEDS (5000) worlds, then run the server among random faults for SOAK (10m)
	CGO_ENABLED=1 $(GO) test -race -count 1 -timeout 0 $(DRIVERS)
	CGO_ENABLED=1 $(GO) test -race -count 1 -timeout 0 ./test/simulation -seeds $(SEEDS) -first $(FIRST)
	CGO_ENABLED=0 SOAK=$(SOAK) $(GO) test -count 1 -v -timeout 0 -run '^Test(SoakOverload|ServeRandomNamesFlood)$$' ./cmd
	CGO_ENABLED=0 SEAMARK_NODE_PAIRS=1000000 $(GO) test -count 1 -v -timeout 0 -run '^TestNodePairs$$' ./test/node
	cd kubetest && CGO_ENABLED=1 SOAK=$(SOAK) SOAK_SEED=$(SOAK_SEED) $(GO) test -race -count 1 -v -timeout 0 -run '^TestSoak' .

# The report says what was run. A failure leaves it, too, with what has grown.
HOURS ?= 24
WORLDS ?= $(shell awk 'BEGIN { print int($(HOURS) * 1000) }')
SOAK_REPORT ?= $(CURDIR)/bin/soak/report.md
soak-day: c-compiler ## run the server for HOURS (24, or 0.1), with clients of all transports and random faults, then WORLDS simulations, and write bin/soak/report.md
	@rm -f $(SOAK_REPORT)
	cd kubetest && CGO_ENABLED=0 SOAK=$(HOURS)h SOAK_SEED=$(SOAK_SEED) SOAK_REPORT=$(SOAK_REPORT) \
		$(GO) test -count 1 -v -timeout 0 -run '^TestSoak$$' .
	@CGO_ENABLED=1 $(GO) test -race -run '^$$' ./test/simulation # builds: the report has the time of the worlds
	@first=$$(date +%s); start=$$first; \
	CGO_ENABLED=1 $(GO) test -race -count 1 -timeout 0 ./test/simulation -run '^TestSimulation$$' -seeds $(WORLDS) -first $$first || exit 1; \
	echo "" >>$(SOAK_REPORT); \
	echo "$(WORLDS) simulated worlds with the race detector, seeds from $$first on, $$(($$(date +%s) - start)) s: all right." >>$(SOAK_REPORT)
	@cat $(SOAK_REPORT)

# The version with which Seamark is compared.
COREDNS_VERSION := 1.15.0
test-coredns: ## run the scripts that are true of CoreDNS, too, against CoreDNS, which it builds (4 minutes the first time)
	@mkdir -p bin/coredns && test -x bin/coredns/$(COREDNS_VERSION) || { echo "== building CoreDNS $(COREDNS_VERSION)"; \
		GOBIN=$(CURDIR)/bin/coredns CGO_ENABLED=0 $(GO) install github.com/coredns/coredns@v$(COREDNS_VERSION) && \
		mv bin/coredns/coredns bin/coredns/$(COREDNS_VERSION); }
	CGO_ENABLED=0 $(GO) test -count 1 ./test/dnstest -run '^(TestScripts|TestCorefiles)$$' -coredns $(CURDIR)/bin/coredns/$(COREDNS_VERSION)
	CGO_ENABLED=0 $(GO) test -count 1 ./test/process -coredns $(CURDIR)/bin/coredns/$(COREDNS_VERSION)
	CGO_ENABLED=0 $(GO) test -count 1 ./directive/dynupdate -run '^TestCoreDNS$$' -coredns $(CURDIR)/bin/coredns/$(COREDNS_VERSION)
	CGO_ENABLED=0 $(GO) test -count 1 ./test/dnstest -run '^TestReadmeExamples$$' -corednssource "$$($(GO) mod download -json github.com/coredns/coredns@v$(COREDNS_VERSION) | sed -n 's/.*"Dir": "\(.*\)",/\1/p')"
	cd kubetest && CGO_ENABLED=0 $(GO) test -count 1 . -run '^(TestScripts|TestEtcdReplay|TestServiceImportVersions|TestKubeconfigContexts)$$' -coredns $(CURDIR)/bin/coredns/$(COREDNS_VERSION)

test-externaldns: ## run the tests in which ExternalDNS is a client, and build it (10 minutes the first time)
	cd kubetest && CGO_ENABLED=0 $(GO) test -count 1 -timeout 30m . -run '^TestExternalDNS' -externaldns

# The tests of a file that checks a bound, itself or by awaitChange.
BOUND := bound\.\(AtMost\|Holds\|Only\|ThreadTime\)(\|awaitChange(
bounds: ## check the durations, rates and shares that tests measure, on a machine without other work
	@grep -l '$(BOUND)' $$(git ls-files '*_test.go') | xargs -n1 dirname | sort -u | while read -r dir; do \
		tests=$$(grep -l '$(BOUND)' "$$dir"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | paste -sd '|'); \
		(cd "$$dir" && SEAMARK_BOUNDS=1 CGO_ENABLED=0 $(GO) test -count 1 -timeout 30m -run "^($$tests)\$$" .) || exit 1; \
	done
	@cd kubetest && SEAMARK_BOUNDS=1 CGO_ENABLED=0 $(GO) test -count 1 -v -run '^TestEtcdManyKeys$$' .
	@cd test/dnstest && SEAMARK_BOUNDS=1 CGO_ENABLED=0 $(GO) test -count 1 -timeout 30m .

soak-restart: ## restart and reload the server under RESTART_QUERIES (1000000) queries in each way and over each transport
	CGO_ENABLED=0 SEAMARK_RESTART_QUERIES=$(or $(RESTART_QUERIES),1000000) $(GO) test -count 1 -v -timeout 0 \
		-run '^Test(HandoverRestart|SocketActivationRestart|RollingUpdate|ReloadQueries)$$' ./cmd

# Its settings: QUICK=1, COREDNS=binary, KUBECONFIG=file, BENCH_INSTALL=1, and
# BENCH_FLAGS for the rest. A KUBECONFIG of the environment is ignored, since the
# benchmark writes into the cluster that it is given.
bench: ## measure against Knot and others; see bench/README.md
	@mkdir -p bin && cd bench && $(GO) build -o ../bin/bench .
	bin/bench $(if $(QUICK),-quick) $(if $(BENCH_INSTALL),-install) \
		$(if $(COREDNS),-coredns '$(COREDNS)') \
		$(if $(filter command line,$(origin KUBECONFIG)),-kubeconfig '$(KUBECONFIG)') $(BENCH_FLAGS)

profile: ## renew cmd/seamark/default.pgo, the profile for release builds
	@mkdir -p bin && cd bench && $(GO) build -o ../bin/bench .
	bin/bench -quick -time 3s -peers '' -profile cmd/seamark/default.pgo $(BENCH_FLAGS)

# The race detector is linked by a C compiler and needs the C library's
# headers. The probe is a preprocessor run: a compiler without headers is found
# on PATH, too.
c-compiler:
	@probe() { echo '#include <stdlib.h>' | $$($(GO) env CC) -E - >/dev/null 2>&1; }; \
	if ! probe; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "no C compiler for the race detector: installing gcc"; \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; \
		fi; \
		probe || { echo "make test needs a C compiler and the C library's headers for Go's race detector: install gcc and libc6-dev (or your system's equivalents), or set CC" >&2; exit 1; }; \
	fi
