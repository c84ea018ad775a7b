# Two commands matter: `make demo` and `make test`. Both make their own virtual environment first.
#
# Variables:
#   PYTHON       interpreter to make the environment with, 3.11 or later
#   VENV         where the environment goes
#   TORCH_INDEX  package index to take torch from. On Linux the usual index has the CUDA build, which is
#                several GB; https://download.pytorch.org/whl/cpu has one for the CPU alone
#   OUTPUT       folder that `make demo` writes to
#   ARGS         more arguments for `make demo` (--set KEY=VALUE) or `make test` (pytest's)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
TORCH_INDEX ?=
OUTPUT ?= runs/demo
ARGS ?=

# Nothing that is installed outside the environment may leak into it.
unexport PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE = 1

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check wheel format golden clean

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

demo: $(VENV)/.pipelines  ## Run the whole pipeline on this machine: no GPU, no account, no download
	$(BIN)/python -m pipelines local --preset laptop --output $(OUTPUT) $(ARGS)

test: $(VENV)/.dev  ## Run the tests, offline
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: $(VENV)/.dev  ## Check format, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

wheel: $(VENV)/.dev  ## Build the wheel into dist/
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

format: $(VENV)/.dev  ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.dev  ## Record compiled pipeline and first steps again (commit it on its own, saying why)
	$(BIN)/python -m pipelines compile --output tests/golden
	COOPER_RECORD_GOLDEN=1 $(BIN)/python -m pytest --quiet tests/training/test_golden.py

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist

# Installing in steps, each remembered by a file, so that nothing is installed twice.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Cooper-RL needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Try: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch: $(VENV)/.created constraints.txt
	@echo "Installing torch into $(VENV) ..."
	$(PIP) setuptools
	$(PIP) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@touch $@

$(VENV)/.pipelines: $(VENV)/.torch pyproject.toml
	@echo "Installing Cooper-RL and Kubeflow Pipelines into $(VENV) ..."
	$(PIP) --no-build-isolation --editable '.[pipelines]'
	@touch $@

$(VENV)/.dev: $(VENV)/.pipelines
	@echo "Installing what tests and checks need into $(VENV) ..."
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@
