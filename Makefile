# Everything from a fresh clone with Python >= 3.11 and make.
#   make quickstart   set up, then train the embedded policy on this machine; where Triton has no wheel, on C++ kernels
#   make test         set up, then run the tests
#   make lint         set up, then ruff, mypy and the import contracts
#   make setup        the set-up alone: .venv with the core, every bundled plugin and the tools, all editable
# TORCH_INDEX=URL     further package index for PyTorch, such as one with CPU-only wheels
# PYTHON=python3.12   interpreter the environment is made with

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml) requirements.txt constraints.txt
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: setup quickstart test lint format

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kernelrl needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# The build tools come first, so that the editable installs share them and fetch nothing again.
$(STAMP): $(PROJECTS) | $(BIN)/python
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --requirement requirements.txt
	@: > $@

quickstart: setup
	$(BIN)/kernelrl run $$($(BIN)/python -c 'from importlib.util import find_spec; print("quickstart" if find_spec("triton") else "quickstart_cpp")') --name quickstart --exist-ok

test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .
