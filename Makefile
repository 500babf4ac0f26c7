# `make demo` and `make test` are all the set-up there is: both build a virtual environment in .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BESIDE := $(VENV)/beside.log
BROWSER := $(VENV)/browser.log
# what most tests need, compiled once while they are collected, and not by every process at the same time
COMPILE := import fedlsa as fl; p, a = fl.problems.garnet(), fl.SCAFFLSA(0.1, 10); fl.simulate(p, a, 10), fl.theory.exact(p, a, 10)

.DEFAULT_GOAL := help
.PHONY: help demo explore test test-simulator test-portable fuzz mutate test-gpu test-network test-nvflare lint bench reproduce network wheels docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-cli ## FedLSA against SCAFFLSA: a table, and the picture out/demo.png
	@$(BIN)/python examples/demo.py

explore: $(VENV)/.installed-explore ## a page in the browser: move a slider, see client drift (ARGS="--port 8000")
	@$(BIN)/fedlsa explore $(ARGS)

test: $(VENV)/.installed-test ## style, types and all tests; what waits more than it works beside the rest
	@$(MAKE) --no-print-directory -k lint test-simulator > $(BESIDE) 2>&1 & beside=$$!; \
	{ $(BIN)/python -c "$(COMPILE)" && $(BIN)/python -m pytest tests/browser; } > $(BROWSER) 2>&1 & browser=$$!; \
	$(BIN)/python -m pytest -n auto --dist worksteal --ignore=tests/gpu --ignore=tests/browser --ignore=tests/nvflare; main=$$?; \
	wait $$beside || main=1; wait $$browser || main=1; cat $(BESIDE) $(BROWSER); exit $$main

test-simulator:  # the GPU engine on a simulator, which needs a process of its own
	@NUMBA_ENABLE_CUDASIM=1 $(BIN)/python -m pytest tests/gpu

test-gpu: $(VENV)/.installed-test $(VENV)/.installed-cuda ## the tests of the GPU engine on a real GPU
	@$(BIN)/python -m pytest tests/gpu

test-network: $(VENV)/.installed-test ## the longer matrix of faults on real processes over loopback: about a quarter of an hour
	@FEDLSA_TEST_NETWORK=1 $(BIN)/python -m pytest tests/network/long

test-nvflare: ## the carrier over NVIDIA FLARE, on real FLARE processes, in an environment of its own: about ten minutes
	@$(MAKE) --no-print-directory VENV=.venv-nvflare .venv-nvflare/.installed-nvflare
	@.venv-nvflare/bin/python -m pip install --quiet --disable-pip-version-check 'pytest>=8'
	@.venv-nvflare/bin/python -m pytest tests/nvflare

test-portable: $(VENV)/.installed-test ## all tests as older processors, more BLAS threads and busy machines run them (ARGS="tests/theory")
	@$(BIN)/python tests/portable.py -n auto --dist worksteal $(or $(ARGS),--ignore=tests/gpu --ignore=tests/browser --ignore=tests/nvflare)

fuzz: $(VENV)/.installed-test ## odd calls of every public function, and bad command lines (COUNT=40000 SEED=1)
	@FEDLSA_FUZZ=$(or $(COUNT),40000) FEDLSA_SEED=$(or $(SEED),1) $(BIN)/python -m pytest tests/fuzz

mutate: $(VENV)/.installed-test ## break one line at a time and see that tests notice (JOBS=2): tests/mutation/mutations.txt
	@$(BIN)/python tests/mutation/run.py --jobs $(or $(JOBS),2)

lint: $(VENV)/.installed-test ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

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
	rm -rf $(VENV) .venv-nvflare build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp per extra: pip runs again only when pyproject.toml has changed. The package itself is installed in place.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing fedlsa[$*] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

.PRECIOUS: $(VENV)/.installed-%
