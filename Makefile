# topogate: a few words, `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check bench cluster cluster-stop fmt generate lock

help: ## list the words
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "topogate needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> installing Python packages into $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## start a control plane, place annotated jobs on it, show and verify where they went
	@$(BIN)/python -m e2e.demo

test: $(STAMP) ## the whole test suite, real control plane included
	@$(BIN)/python -m e2e.binaries
	@$(BIN)/python -m pytest

check: $(STAMP) ## lint, types, the dependency law, drift of generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m core.api.schema --check

bench: $(STAMP) ## benchmarks: ratios and counts
	@$(BIN)/python -m tests.bench

cluster: $(STAMP) ## leave a control plane with kwok nodes running, to try kubectl by hand
	@$(BIN)/python -m e2e.cluster

cluster-stop: $(STAMP)
	@$(BIN)/python -m e2e.cluster stop

fmt: $(STAMP) ## format the code
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

generate: $(STAMP)
	@$(BIN)/python -m core.api.schema --write

# Needs uv; the lock carries hashes and no host or path.
lock:
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet -o requirements.lock
