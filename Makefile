# Targets, from a fresh clone with Python >= 3.11 and make:
#   make setup        install into .venv: the core, every bundled plugin and the tools, all editable
#   make quickstart   setup, then train a small model on this machine; on C++ kernels where Triton has no wheel
#   make test         setup, then run the tests
#   make lint         setup, then ruff, mypy, the import contracts and the words
#   make docs         the documentation as a site in build/docs; installs Sphinx, needs no setup; fails for a dead link
#   make format       setup, then fix and format with ruff
#   make dist         setup, then build and check wheels and source distributions of all packages in dist/
#   make test-oldest  setup, then the tests of the core with the oldest versions of its dependencies
#   make test-newest  setup, then the same with the newest
#   make test-sdk     setup, then the tests of policy `tinker` and of the server with the oldest version of Tinker's SDK
# Variables:
#   SDK=0.30.4          version of Tinker's SDK for test-sdk; 0.34 and newer also need COOKBOOK=0.5.8
#   TORCH_INDEX=URL     additional package index for PyTorch, for example one with CPU-only wheels
#   PYTHON=python3.12   interpreter that creates .venv

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml) requirements.txt constraints.txt
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: setup quickstart test lint docs format dist test-oldest test-newest test-sdk

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kernelrl needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# The build tools are installed first: the editable installs share them and download nothing again.
$(STAMP): $(PROJECTS) | $(BIN)/python
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --requirement requirements.txt
	$(PIP) --no-deps tinker-cookbook==0.6.1
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
	$(BIN)/python scripts/check_words.py

$(DOCS_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[docs]'
	@: > $@

docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --nitpicky --conf-dir docs . build/docs
	@echo build/docs/index.html

format: setup
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

dist: setup
	$(BIN)/python scripts/dist.py

test-oldest: RESOLUTION := lowest-direct
test-newest: RESOLUTION := highest

# The plugins take part, because tests of the core use their components.
test-oldest test-newest: setup
	$(PIP) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/$@
	$(BIN)/uv pip install --quiet --python build/$@ --resolution $(RESOLUTION) --editable '.[dev,parquet]'
	$(BIN)/uv pip freeze --quiet --python build/$@ --exclude-editable > build/$@/dependencies.txt
	$(subst -m pip,-m pip --python build/$@,$(PIP)) --constraint build/$@/dependencies.txt \
	  $(shell grep '^torch==' constraints.txt) $(patsubst %,--editable %,$(wildcard plugins/*))
	build/$@/bin/python -m pytest tests

# The cookbook of constraints.txt needs a newer SDK.
SDK ?= 0.25.*
COOKBOOK ?= 0.5.7
test-sdk: setup
	rm -rf build/$@
	$(PIP) --no-deps --target build/$@ 'tinker==$(SDK)' 'tinker-cookbook==$(COOKBOOK)'
	PYTHONPATH=build/$@ $(BIN)/python -m pytest plugins/kernelrl-plugin-tinker/tests plugins/kernelrl-tinker-server/tests/test_sdk.py
