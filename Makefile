# Everything here also works without make: a target's commands are what it runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
METHODS ?= pld,rest,dresd,sen_greedy,sense

.DEFAULT_GOAL := help
.PHONY: help run test test-slurm check lint types unit test-oldest bench table clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

run: $(VENV)/.installed ## Set up, fetch the model, build small datastores, run METHODS against vanilla
	$(BIN)/python run.py -m method=$(METHODS) experiment=quick

test: $(VENV)/.installed ## Set up and run all tests (the real model included, no GPU, no cluster)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slurm'

test-slurm: $(VENV)/.installed ## Sweeps on a SLURM cluster of this machine (root, Debian's slurm-wlm and munge)
	$(BIN)/python -m pytest tests/slurm

check: lint types unit ## Lint, types, contract and unit tests, without shape checks; two minutes

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

unit: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' --without-shape-checks \
		tests/contract tests/unit tests/configs

test-oldest: ## The adapter's tests with the oldest supported transformers, in an environment of its own
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[dev]'
	.venv-oldest/bin/python -m pytest -m 'not slow and not slurm'

bench: $(VENV)/.installed ## Speed against transformers' generate, time per phase, row-count curve (minutes)
	$(BIN)/python scripts/bench.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python scripts/bench_suffix_array.py
	$(BIN)/python scripts/bench_store_sizes.py --sizes 4 40 100
	$(BIN)/python scripts/bench_hidden_states.py --keys 1000000
	$(BIN)/python scripts/bench_suffix_tree.py
	$(BIN)/python scripts/bench_retrievers.py

table: $(VENV)/.installed ## Regenerate the README's table from the committed results
	$(BIN)/python scripts/readme_table.py

clean: ## Remove environments and caches of this checkout (not results, not the model)
	rm -rf .venv .venv-oldest .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
