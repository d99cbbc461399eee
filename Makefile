# Each target does all of its own set-up: the environment lives in .venv and is made once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --durations=10

.PHONY: demo test test-slow lint format numbers bench docs clean

demo: $(USE)
	$(BIN)/priorax demo --out demo

# What a change usually breaks, in minutes. Most of it is compiling, which takes less without optimisations.
test: $(DEV) lint
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(PYTEST) -m "not slow" tests

# Slow real things: Ray clusters, a browser, notebooks, examples, long learning, many seeds, the wheel.
test-slow: $(DEV)
	$(PYTEST) -m slow tests

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every measured number in README.md, results/README.md and docs/, recomputed from the rows in results/.
numbers: $(DEV)
	$(BIN)/python -m tools.numbers

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV)
	$(BIN)/mkdocs build --strict

bench: $(DEV)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks

$(USE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "priorax needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(DEV): $(USE)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .cache demo site
