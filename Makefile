# `make test` and `make demo` do everything on a machine that has Python only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := constraints.txt
TESTS ?=
EXAMPLES ?= 50

.PHONY: help test lint unit compat fuzz demo bench clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $(READY)

test: lint unit  ## all checks and all tests

lint: $(READY)  ## format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(READY)  ## the tests alone; TESTS=tests/core for some of them
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 $(TESTS)

compat:  ## the tests with the oldest versions of all dependencies, in a place of their own
	$(MAKE) unit VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt

fuzz: $(READY)  ## random streams and faulty inputs for every metric; EXAMPLES=50 times as many
	DYNMETRICS_FUZZ=$(EXAMPLES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto \
		--maxprocesses 8 tests/fuzz

demo: $(READY)  ## train a recurrent network on real images in two processes
	$(BIN)/python examples/train_recurrent_digits.py

bench: $(READY)  ## speed against peers, one table
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks

clean:  ## remove what was built
	rm -rf $(VENV) .venv-oldest build dist runs *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
