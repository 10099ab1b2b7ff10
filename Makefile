# SPDX-License-Identifier: Apache-2.0

GO          ?= go
FUZZTIME    ?= 60s
BENCHTIME   ?= 1s
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# A tree that git will not look into, such as one that belongs to another user, has no
# commit to stamp.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

# Packages whose tests can rewrite their golden files.
GOLDEN = $(shell grep -rlE --include='*_test.go' '(flag.Bool|BoolVar).*"update"' . 2>/dev/null | xargs -r -n1 dirname | sort -u)

.DEFAULT_GOAL := help
.PHONY: help build run test soak bench lint update clean

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## bin/tableward
	$(GO) build -buildvcs=$(VCS) -o bin/tableward ./cmd/tableward

run: build ## the demo: three features race for the same tables
	@bin/tableward demo testdata/demo/*.log

test: ## everything, on both kernel backends and IP versions, race detector on
	@.ci/test

soak: ## the tests' full forms, then each fuzz target for FUZZTIME (60s)
	@FUZZTIME=$(FUZZTIME) .ci/soak

bench: SHELL := bash
bench: ## times beside those of the plain tool, a table for each backend (SHORT=1: small ones), then the other benchmarks
	@set -o pipefail; $(GO) test -run '^$$' -bench '^BenchmarkSpeed$$' -benchtime 1x -timeout 60m $(if $(SHORT),-short) ./actors | \
		awk '/^(\|.*)?$$/ { print; next } { print >"/dev/stderr" }'
	$(GO) test -run '^$$' -bench . -skip '^BenchmarkSpeed$$' -benchtime $(BENCHTIME) -benchmem ./...

lint: ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l .) && { test -z "$$out" || { echo "gofmt -w these:"; echo "$$out"; exit 1; }; }
	$(GO) vet ./... ./.ci/testsum
	$(GO) run $(STATICCHECK) ./... ./.ci/testsum

update: ## golden files, from what the tests get now; read the diff
	@test -n "$(GOLDEN)" || { echo "no package has golden files"; exit 1; }
	$(GO) test -count=1 $(GOLDEN) -update

clean: ## remove what was built
	rm -rf bin
