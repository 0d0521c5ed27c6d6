# topogate: a few words, `make` alone lists them.
SHELL := /bin/bash
unexport PYTHONDONTWRITEBYTECODE  # hundreds of processes start in the tests: each would compile all of topogate anew
# Memory in pages of 2 MB, where the kernel gives them on request: a virtual machine pays dear for each small one (docs/testing.md).
export PYTHONMALLOC ?= malloc
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast test-all simulate-faults check bench cluster cluster-stop cluster-fail cluster-repair operators generate image lock measure-code

help: ## list the words
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "topogate needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test ! -L $(VENV) || { echo "$(VENV) is a link: the packages of another checkout would be removed. Remove the link first." >&2; exit 1; }
	@echo "==> installing Python packages into $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --quiet --no-deps --no-build-isolation -e .
	@touch $@

venv: $(STAMP) ## only the Python packages, in .venv: enough for check and the fast tests

# KUBERNETES=1.34 chooses the control plane of tests, demo and cluster; e2e/binaries.py has the versions.
ifdef KUBERNETES
export TOPOGATE_KUBERNETES := $(KUBERNETES)
endif
OLDER := $(filter-out 1.36,$(KUBERNETES))

demo: $(STAMP) ## start a control plane, place annotated jobs on it, show and verify where they went
	@$(BIN)/python -m e2e.demo

# Tests on a control plane wait most of their time: two processes for each processor play these, and one plays others (tests/workers.py).
PROCESSORS := $(shell nproc 2>/dev/null || echo 2)
ifeq ($(origin PROCESSES),undefined)
PROCESSES := $(shell echo $$((3 * $(PROCESSORS))))
test-fast: PROCESSES := $(PROCESSORS)
endif
# Random, and printed where a test fails: the order of sets is part of a failure.
ifndef PYTHONHASHSEED
export PYTHONHASHSEED := $(if $(CI),0,$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
endif
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(PROCESSES)),--numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder)

test: $(STAMP) ## all that protects a promise, in PROCESSES that each have a real control plane of their own (docs/testing.md); KUBERNETES=1.34 or 1.35 for the live half there
	@$(BIN)/python -m e2e.binaries
	@$(BIN)/python -m e2e.kind.tools
	@$(BIN)/python -m e2e.operators.build jobset lws mpi-operator
	@rm -rf out/asked
	@TOPOGATE_DURATIONS=durations$(if $(KUBERNETES),-$(KUBERNETES)).json $(PYTEST) -m "$(if $(OLDER),cluster and )not long"
	@$(BIN)/python -m tests.chart.rights_of_a_run $(if $(OLDER),--some)

test-fast: $(STAMP) ## the tests without a control plane, but for slow ones
	@HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),fast) $(PYTEST) -m "not cluster and not slow and not long"

test-all: $(STAMP) ## also the long tests: images, Helm upgrades, every point of a crash, all scenes live, 2,000 seeds, ten times the random examples, older Kubernetes
	@$(BIN)/python -m e2e.binaries
	@$(BIN)/python -m e2e.kind.tools
	@$(BIN)/python -m e2e.operators.build
	@rm -rf out/asked
	@TOPOGATE_SCENES=live TOPOGATE_DURATIONS=durations-all.json HYPOTHESIS_PROFILE=deep $(PYTEST)
	@$(BIN)/python -m tests.chart.rights_of_a_run
	@for minor in 1.34 1.35; do TOPOGATE_SCENES=live $(MAKE) --no-print-directory test KUBERNETES=$$minor || exit 1; done

simulate-faults: $(STAMP) ## play SEEDS=10000 random lives of a cluster with faults, for at most MINUTES=90; started again it goes on, with ANEW=1 it begins anew
	@$(BIN)/python -m sim.many --seeds $(or $(SEEDS),10000) --processes $(PROCESSORS) --minutes $(or $(MINUTES),90) $(if $(ANEW),--anew)

check: $(STAMP) ## lint, types, the dependency law, drift of generated files, plain English
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m core.api.schema --check
	@$(BIN)/python -m webhook.chart --check
	@$(BIN)/python -m reconciler.rbac --check
	@$(BIN)/python -m cli.reference --check
	@$(BIN)/python -m tools.words

bench: $(STAMP) ## benchmarks: ratios and counts; NAME=worst for one of docs/development/benchmarks.md, ARGS="..." for what it takes
	@$(BIN)/python -m tests.bench$(if $(NAME),.$(NAME)) $(ARGS)

cluster: $(STAMP) ## leave a control plane with kwok nodes running, to try kubectl by hand; OPERATORS=jobset,lws for real operators
	@$(BIN)/python -m e2e.cluster $(if $(OPERATORS),--operators $(OPERATORS))

cluster-fail: $(STAMP) ## let NODE=b1-r1-n1 of `make cluster` fail; cluster-repair makes it Ready again
	@$(BIN)/python -m e2e.cluster fail $(NODE)

cluster-repair: $(STAMP) ## make NODE=b1-r1-n1 of `make cluster` Ready again
	@$(BIN)/python -m e2e.cluster repair $(NODE)

operators: $(STAMP) ## build the real operators from their Go modules, once (a minute each after the first)
	@$(BIN)/python -m e2e.operators.build

cluster-stop: $(STAMP) ## end what `make cluster` left running
	@$(BIN)/python -m e2e.cluster stop

generate: $(STAMP) ## write the CRDs anew, from core/api, and the chart's webhooks, policies and rights
	@$(BIN)/python -m core.api.schema --write
	@$(BIN)/python -m webhook.chart --write
	@$(BIN)/python -m reconciler.rbac --write
	@$(BIN)/python -m cli.reference --write

image: $(STAMP) ## the container image as an OCI archive, and its SBOM, in out/: no container engine needed
	@$(BIN)/python -m tools.image

# Needs uv; the locks carry hashes and no host or path. The second is the part of the first that is no tool: what the image holds.
lock: ## resolve requirements.lock and requirements-run.lock anew
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet -o requirements.lock
	uv pip compile pyproject.toml --constraint requirements.lock --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet -o requirements-run.lock

measure-code: $(STAMP) ## lines of code by package, large folders, names that stand twice, text that is to be rewritten
	@$(BIN)/python -m tools.measure
