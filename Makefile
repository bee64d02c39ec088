# Everything is kept below target/, .run/ and the cache; `make up` and `make test` need nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Programs of Kubernetes and the tools of tests are kept here, for all checkouts.
KUBEBYON_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubebyon
# DATA_DIR (the state of `make up`, first .run/data) and LISTEN (its port, first :8443) stay as .run/kubebyon.yaml has them unless given.

TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
BINARY := target/release/kubebyon

export KUBEBYON_CACHE DATA_DIR LISTEN BINARY

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: up
up: prerequisites build assets ## Set up, build, run, and have a first cluster ready; LISTEN=, DATA_DIR=
	@scripts/up.sh

.PHONY: down
down: ## Delete the clusters of `make up` and stop it; its data folder stays
	@scripts/down.sh

.PHONY: clean-run
clean-run: ## `make down`, and remove the data folder of `make up` too
	@scripts/clean-run.sh

.PHONY: clean
clean: ## Remove what was built; the cache and .run/ stay
	@scripts/clean.sh

.PHONY: prerequisites
prerequisites: ## Install what building and running need (as root), or say what is missing
	@scripts/prerequisites.sh

.PHONY: build
build: ## Build target/release/kubebyon, static
	@scripts/build.sh "$(TARGET)"

.PHONY: assets
assets: build ## Bring the programs of the default Kubernetes version; others by VERSIONS=, NODES=1, HELM=1
	@scripts/assets.sh $(foreach v,$(VERSIONS),--kubernetes $(v)) $(if $(NODES),--nodes) $(if $(HELM),--helm)

.PHONY: test
test: ## Everything that CI runs
	@scripts/test.sh

.PHONY: check
check: ## Format, lints, import rules, dependencies
	@scripts/check.sh

.PHONY: bench
bench: prerequisites build assets ## Measure, and write bench/results.json
	@KUBEBYON_BIN="$(CURDIR)/$(BINARY)" cargo bench --bench platform

.PHONY: fuzz
fuzz: ## Fuzz the parsers of what strangers send; SECONDS_EACH=60
	@scripts/fuzz.sh "$(or $(SECONDS_EACH),60)"

.PHONY: soak
soak: prerequisites build assets ## Create, use and delete clusters for a while and look for leaks; MINUTES=60
	@scripts/soak.sh "$(or $(MINUTES),60)"
