# Two commands: `make demo` and `make test`. Both set up what they need in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install $(if $(CI),--quiet) --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: browser network print-quick demo examples test test-ray quick test-versions fuzz check docs links wheel sbom bench clients dlio clean help

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/'

demo: $(VENV)/demo.stamp ## Train an MLP on MNIST in JAX, and compare loaders (DATA=DIR for all of it, DEMO=--help)
	$(BIN)/python -m gristmill demo $(DATA:%=--data %) $(DEMO)
	$(if $(findstring --help,$(DEMO)),,$(BIN)/python examples/mnist_five_ways.py $(DATA:%=--data %))

examples: $(VENV)/examples.stamp ## Install the loaders to compare with, and run the examples (DATA=DIR, EXAMPLE=--help)
	$(BIN)/python examples/mnist_five_ways.py $(DATA:%=--data %) $(EXAMPLE)
	$(if $(EXAMPLE),,$(BIN)/python examples/train_nnx.py $(DATA:%=--data %))
	$(if $(EXAMPLE),,$(BIN)/python examples/train_lm.py)
	$(if $(EXAMPLE),,$(BIN)/python examples/train_vit.py)

test: check browser ## Run every check, but for the tests that start Ray clusters
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/ray || { echo "Tests failed side by side: each of them runs once more, alone."; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --ignore tests/ray; }

browser: ## Install Chromium if it is missing, in which the tests open pages
	@scripts/install_debian.sh chromium chromium chromium-browser google-chrome

network: ## Install iproute2 if it is missing, with which the tests slow a network down
	@scripts/install_debian.sh iproute2 tc

test-ray: $(VENV)/test.stamp network ## Run the tests that start Ray clusters on this machine
	$(BIN)/python -m pytest tests/ray || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none tests/ray # a cluster on a busy machine may miss a deadline once

quick: $(VENV)/test.stamp ## Run the tests that need neither workers nor other loaders, in under two minutes
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(QUICK)

QUICK := tests/test_architecture.py tests/test_exports.py tests/test_options.py tests/base tests/plan tests/metrics/test_counters.py \
	tests/data/batching tests/data/sampling tests/data/transforms tests/data/sources/memory tests/data/sources/arrays tests/engine/access \
	tests/engine/blocks tests/engine/stages tests/engine/stateful tests/checkpoint/test_state.py tests/api/dataset tests/properties

PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3.14t
test-versions: ## Run the tests of `make quick` and those with workers on each Python that is installed (PYTHONS="python3.13 ...")
	@for python in $(PYTHONS); do \
		if $$python -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then scripts/test_version.sh $$python || exit 1; \
		else echo "SKIPPED: $$python is not installed"; fi; \
	done

print-quick:
	@echo $(QUICK)

FUZZ ?= 20000
fuzz: $(VENV)/test.stamp $(VENV)/fuzz.stamp ## Run the tests with hostile files for minutes, each time with other inputs (FUZZ=20000 for each format)
	HOSTILE_INPUTS=$(FUZZ) HOSTILE_SEED=$$(date +%s) $(BIN)/python -m pytest -n 2 tests/hostile
	$(BIN)/python -m tests.hostile.coverage_guided_all $(FUZZ)

check: $(VENV)/test.stamp ## Run the linter, the type checker and the word check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	PYTHONPATH=src $(BIN)/pyright --verifytypes gristmill --ignoreexternal --pythonpath $(BIN)/python
	$(BIN)/python scripts/check_words.py

docs: $(VENV)/docs.stamp ## Build the site into docs/_build/html, with warnings and broken links within it as errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

links: $(VENV)/docs.stamp ## Check the links to other sites, which needs a network
	$(BIN)/python -m sphinx -b linkcheck -q docs docs/_build/links

wheel: $(VENV)/release.stamp ## Build the wheel and the sdist twice, compare them, and try the wheel in a new environment
	$(BIN)/python scripts/build_release.py

sbom: $(VENV)/release.stamp ## Write the packages that the wheel installs, with their licenses, to sbom.json
	$(BIN)/python scripts/sbom.py

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
	rm -rf $(VENV) .venv-* .pytest_cache .ruff_cache .hypothesis docs/_build dist

$(VENV)/%.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing gristmill[$*] into $(VENV): $$($(BIN)/python scripts/extra_packages.py $*)"
	$(INSTALL) ".[$*]"
	touch $@
