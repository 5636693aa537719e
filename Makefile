# Thin on purpose: each target is one command that you could type. demo, test and bench first install what
# they run and the machine lacks (.ci/needs), PostgreSQL above all.
#
#   make demo              everything in one process tree; ARGS=--once to end after the proof
#   make test              all tests; they start the databases they need
#   make check             what a reviewer would complain about: format, vet, lint, tidy
#   make race fuzz crash   the slower tests; crash takes KILL_ROUNDS and KILL_SECONDS
#   make conformance       the official MCP suite, both revisions; part of make test
#   make bench             measures this machine; ARGS=--json
#   make mutants           breaks the code on purpose, and wants a test to see it; ARGS=reconciled for some
#   make soak              breaks everything at random for ten minutes; ARGS="--soak 1m --seed 42"

GO       ?= go
TOOL     := $(GO) tool -modfile=.ci/tools.mod
ARGS     ?=
FUZZTIME ?= 20s
KILL_ROUNDS  ?= 200
KILL_SECONDS ?= 600

.PHONY: demo build test conformance race fuzz crash mutants bench soak vectors check fmt-check vet lint tidy-check fmt

demo:
	@.ci/needs demo
	$(GO) run ./cmd/counterfoil demo $(ARGS)

build:
	$(GO) build ./...

test:
	@.ci/needs test
	$(GO) test -timeout=20m ./...

race:
	$(GO) test -race -shuffle=on -count=1 -timeout=40m ./...

# What may fail in it, and why, is in cmd/counterfoil/e2e/testdata/conformance.
conformance:
	@.ci/needs test
	$(GO) test -v -count=1 -run='TestConformance' ./cmd/counterfoil/e2e

fuzz:
	.ci/fuzz $(FUZZTIME)

# The long forms: kills, pauses and stops at random moments, as many rounds or seconds a test, all at once; every row
# of the fault table; long histories; a minute without a database; what an asynchronous standby loses.
# COUNTERFOIL_SEED=n makes the choices of an earlier run.
crash:
	COUNTERFOIL_KILL_ROUNDS=$(KILL_ROUNDS) COUNTERFOIL_KILL_SECONDS=$(KILL_SECONDS) \
		$(GO) test -v -count=1 -parallel=6 -timeout=40m -run='AtRandom|OneOfThreeKilled|DatabaseKilled|StoppedUnderLoad' ./cmd/counterfoil/e2e
	COUNTERFOIL_LONG=1 COUNTERFOIL_ASYNC_FAILOVER=1 $(GO) test -v -count=1 -timeout=20m -run='DatabaseAway|Failover' ./cmd/counterfoil/e2e
	COUNTERFOIL_FAULTS=all COUNTERFOIL_FAULT_ROUNDS=300 COUNTERFOIL_HISTORIES=200 \
		$(GO) test -count=1 -timeout=60m -run='Fault|Histories' ./ledger
	$(GO) test -count=1 -timeout=20m -run='Crash|Kill' ./cmd/counterfoil/... ./ledger ./internal/...

mutants:
	$(GO) run ./.ci/mutants $(ARGS)

bench:
	@.ci/needs bench
	$(GO) run ./cmd/counterfoil bench $(ARGS)

soak:
	@.ci/needs test
	$(GO) run ./cmd/counterfoil bench $(or $(ARGS),--soak 10m)

# Everything that was signed or hashed once must stay readable: the files under testdata, read again.
vectors:
	$(GO) test -count=1 -run='Vector|Seeds|Golden|Fuzz' ./internal/canon ./internal/jws ./permits ./receipts/... ./verify

check: fmt-check vet lint tidy-check

fmt-check:
	@out="$$($(TOOL) gofumpt -l -modpath counterfoil .)" && test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }

vet:
	$(GO) vet ./...

lint:
	$(TOOL) golangci-lint run

tidy-check:
	$(GO) mod tidy -diff

fmt:
	$(TOOL) gofumpt -w -modpath counterfoil .
