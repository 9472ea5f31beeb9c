# Two commands: `make demo` and `make test`. Both set up what they need in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: demo examples test quick fuzz check bench clients dlio clean help

help: ## List the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

demo: $(VENV)/demo.stamp ## Train an MLP on MNIST in JAX, and compare loaders (DATA=DIR for all of it, DEMO=--help)
	$(BIN)/python -m gristmill demo $(DATA:%=--data %) $(DEMO)
	$(if $(findstring --help,$(DEMO)),,$(BIN)/python examples/mnist_five_ways.py $(DATA:%=--data %))

examples: $(VENV)/examples.stamp ## Install the loaders to compare with, and run the examples (DATA=DIR, EXAMPLE=--help)
	$(BIN)/python examples/mnist_five_ways.py $(DATA:%=--data %) $(EXAMPLE)
	$(if $(EXAMPLE),,$(BIN)/python examples/train_nnx.py $(DATA:%=--data %))
	$(if $(EXAMPLE),,$(BIN)/python examples/train_lm.py)

test: check ## Run every check
	$(BIN)/python -m pytest -n 2 --dist loadfile

quick: $(VENV)/test.stamp ## Run the tests that need neither workers nor other loaders, in under two minutes
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(QUICK)

QUICK := tests/test_architecture.py tests/test_exports.py tests/test_options.py tests/base tests/plan tests/metrics/test_counters.py \
	tests/data/batching tests/data/sampling tests/data/transforms tests/data/sources/memory tests/data/sources/arrays tests/engine/access \
	tests/engine/blocks tests/engine/stages tests/engine/stateful tests/checkpoint/test_state.py tests/api/dataset tests/properties

FUZZ ?= 20000
fuzz: $(VENV)/test.stamp ## Run the tests with hostile files for minutes, each time with other inputs (FUZZ=20000 for each format)
	HOSTILE_INPUTS=$(FUZZ) HOSTILE_SEED=$$(date +%s) $(BIN)/python -m pytest -n 2 tests/hostile

check: $(VENV)/test.stamp ## Run the linter, the type checker and the word check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	PYTHONPATH=src $(BIN)/pyright --verifytypes gristmill --ignoreexternal --pythonpath $(BIN)/python
	$(BIN)/python scripts/check_words.py

bench: $(VENV)/bench.stamp ## Measure gristmill and its peers in one run (BENCH="--help" for more)
	$(BIN)/python -m benchmarks $(BENCH)

clients: .venv-clients/stamp ## Run pipelines of other projects on Grain and on gristmill, in an environment of its own (CLIENT=NAME)
	PYTHONPATH=src .venv-clients/bin/python -m clients $(CLIENT)

.venv-clients/stamp: clients/requirements.txt clients/constraints.txt clients/without_dependencies.txt
	test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --requirement clients/requirements.txt --constraint clients/constraints.txt
	.venv-clients/bin/python -m pip install --quiet --no-deps --requirement clients/without_dependencies.txt
	touch $@

dlio: .venv-dlio/dlio.stamp ## Run DLIO, the engine behind MLPerf Storage, with PyTorch's loader and with gristmill's
	.venv-dlio/bin/python -m benchmarks.dlio

.venv-dlio/dlio.stamp: benchmarks/dlio/constraints.txt
	test -x .venv-dlio/bin/python || $(PYTHON) -m venv .venv-dlio
	.venv-dlio/bin/python -m pip install --quiet --no-deps --requirement benchmarks/dlio/constraints.txt
	touch $@

clean: ## Remove what the other commands made
	rm -rf $(VENV) .venv-clients .venv-dlio .pytest_cache .ruff_cache .hypothesis

$(VENV)/%.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[$*]"
	touch $@
