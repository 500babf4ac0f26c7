# `make demo` and `make test` are all the set-up there is: both build a virtual environment in .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n auto --dist worksteal
# The tiers. What stands in none of these lists, and is not marked as long, is `make test`.
PAGES := tests/browser tests/explore tests/experiments/test_everything.py
SHOWN := tests/docs tests/examples tests/benchmarks tests/figures tests/test_doctests.py tests/fitting/test_panel.py
LONG := tests/fuzz tests/network/long tests/engine/test_moments.py tests/experiments/test_cluster.py tests/test_portable.py
APART := $(addprefix --ignore=,tests/gpu $(PAGES) $(SHOWN) $(LONG))
QUICK := tests integrations -m "not long" $(APART)

.DEFAULT_GOAL := help
.PHONY: help demo explore test test-all test-pages test-simulator test-docs test-long test-fuzz test-network test-nvflare \
	test-portable test-marked test-marked-rooms test-marked-theory mutate test-gpu lint types style bench reproduce network \
	wheels docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-cli ## FedLSA against SCAFFLSA: a table, and the picture out/demo.png
	@$(BIN)/python examples/demo.py

explore: $(VENV)/.installed-explore ## a page in the browser: move a slider, see client drift (ARGS="--port 8000")
	@$(BIN)/fedlsa explore $(ARGS)

test: $(VENV)/.installed-test ## style, all numerics, fits, the protocol: six minutes on two cores
	@$(MAKE) --no-print-directory style
	@$(BIN)/python tests/compile_kernels.py
	@$(PYTEST) $(PARALLEL) $(QUICK)

test-all: ## every tier in turn: about two hours
	@$(MAKE) --no-print-directory -k test lint test-pages test-simulator test-docs test-long

test-pages: $(VENV)/.installed-test types ## every page in a browser: explorer, play, report, network, site; types of scripts
	@$(PYTEST) -n auto --dist loadfile tests/browser
	@$(PYTEST) $(PARALLEL) $(filter-out tests/browser,$(PAGES))

test-simulator: $(VENV)/.installed-test ## the GPU engine on a simulator, which needs a process of its own
	@NUMBA_ENABLE_CUDASIM=1 $(PYTEST) $(PARALLEL) tests/gpu

test-docs: $(VENV)/.installed-test ## what is shown runs as shown: documentation, examples, figures, benchmarks
	@$(PYTEST) $(PARALLEL) $(SHOWN)

test-long: ## what takes long: tests marked so, fuzz, network, nvflare, portable, mutate; each has a name of its own too
	@$(MAKE) --no-print-directory -k test-marked test-fuzz test-network test-nvflare test-portable mutate

test-marked: test-marked-rooms test-marked-theory

test-marked-rooms: $(VENV)/.installed-test  # moments over thousands of seeds, kill tests, clusters of processes
	@$(PYTEST) $(PARALLEL) -m long tests --ignore=tests/theory $(APART)
	@$(PYTEST) $(PARALLEL) $(filter %.py,$(LONG))

test-marked-theory: $(VENV)/.installed-test  # plans against brute search, curves and limits against thousands of seeds
	@$(PYTEST) $(PARALLEL) -m long tests/theory

test-fuzz: $(VENV)/.installed-test ## odd calls of every public function, and bad command lines (COUNT=40000 SEED=1)
	@FEDLSA_FUZZ=$(or $(COUNT),40000) FEDLSA_SEED=$(or $(SEED),1) $(PYTEST) tests/fuzz

test-network: $(VENV)/.installed-test ## the longer matrix of faults on real processes over loopback: about a quarter of an hour
	@$(PYTEST) tests/network/long

test-nvflare: ## the carrier over NVIDIA FLARE, on real FLARE processes, in an environment of its own: about ten minutes
	@$(MAKE) --no-print-directory VENV=.venv-nvflare .venv-nvflare/.installed-network
	@.venv-nvflare/bin/python -m pip install --quiet --disable-pip-version-check 'pytest>=8' -e integrations/fedlsa-nvflare
	@.venv-nvflare/bin/python -m pytest integrations/fedlsa-nvflare

test-portable: $(VENV)/.installed-test ## all of `make test` as older processors, more BLAS threads and busy machines run it (ARGS="tests/theory")
	@$(BIN)/python tests/portable.py $(PARALLEL) $(or $(ARGS),$(QUICK))

test-gpu: $(VENV)/.installed-test $(VENV)/.installed-cuda ## the tests of the GPU engine on a real GPU
	@$(PYTEST) tests/gpu

mutate: $(VENV)/.installed-test ## break one line at a time and see that tests notice (JOBS=2): tests/mutation/mutations.txt
	@$(BIN)/python tests/mutation/run.py --jobs $(or $(JOBS),2)

lint: style ## style and types
	@$(BIN)/mypy

style: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

bench: $(VENV)/.installed-bench ## nanoseconds per agent update, beside NumPy and JAX; exact curves beside simulation; fits
	@$(BIN)/python benchmarks/speed.py
	@$(BIN)/python benchmarks/theory.py
	@$(BIN)/python benchmarks/reproduction.py
	@$(BIN)/python benchmarks/bootstrap.py
	@$(BIN)/python benchmarks/fit.py

reproduce: $(VENV)/.installed-cli ## every figure, table and claim of the paper: out/report/index.html (ARGS="fig1 --quick")
	@$(BIN)/fedlsa reproduce $(ARGS)

network: $(VENV)/.installed-network ## a coordinator and four sites on this machine; one is killed and brought back
	@$(BIN)/fedlsa network demo

wheels: | $(BIN)/python ## fedlsa[network] for machines without a network: out/wheels (ARGS="--machine aarch64")
	@$(BIN)/python deploy/make_wheels.py $(ARGS)

docs: $(VENV)/.installed-docs ## the documentation as a site: out/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet, with which warnings would not count
	@echo "open out/site/index.html"

clean: ## remove the virtual environment and all caches; out/ stays
	rm -rf $(VENV) .venv-nvflare tests/types/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# TypeScript reads the types that scripts of pages state in comments; node comes with the test extra, from PyPI.
types: tests/types/node_modules/.package-lock.json
	@$(BIN)/node tests/types/node_modules/typescript/bin/tsc --project tests/types
	@$(BIN)/node tests/types/node_modules/typescript/bin/tsc --project tests/types/strict.json

tests/types/node_modules/.package-lock.json: tests/types/package-lock.json $(VENV)/.installed-test
	@$(BIN)/npm ci --silent --prefix tests/types
	@touch $@

# A stamp per extra: pip runs again only when pyproject.toml has changed. The package itself is installed in place.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing fedlsa[$*] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

.PRECIOUS: $(VENV)/.installed-%
