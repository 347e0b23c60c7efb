# Everything below does its own set-up into .venv and can be repeated without harm.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-avx2 test-pages test-lowest test-pythons golden faults check docs bench clean

# Two processes of one thread each: the tests compute too little for more threads.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations 10
# A processor without avx512 and bf16 units, and the tests of the packages that compute.
AS_AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
NUMERIC := tests/golden tests/model tests/decode tests/objective tests/training tests/estimate

demo: $(VENV)/.run
	$(BIN)/sublayer demo

# Ten minutes on two quiet cores.
test: $(VENV)/.dev
	$(PYTEST) -m "not all and not pages"
	$(MAKE) check

# All rows, shipped studies and recipes, kills, new draws of the property tests, AVX2, pages, lowest bounds, Pythons.
test-all: $(VENV)/.dev
	TESTS_ALL=1 $(PYTEST) -m "not pages"
	$(MAKE) check test-avx2 test-pages test-lowest test-pythons

test-avx2: $(VENV)/.dev
	$(AS_AVX2) $(PYTEST) -m "not all and not pages" $(NUMERIC)

# The commands of every page, in the order in which they stand, with small models, and the notebook's cells.
test-pages: $(VENV)/.dev
	$(PYTEST) -m pages

# Apply seeded faults one at a time, and run the tests that reach each: hours; results in tests/faults.
faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults record after --marks "not all and not pages"
	$(BIN)/python -m tests.faults hunt after
	$(BIN)/python -m tests.faults show before after

# The built wheel in empty environments: at the lowest versions of what it depends on, and on several Pythons. Where the
# package index has torch for GPUs alone, an environment takes 8 GB while it is tried.
test-lowest: $(VENV)/.dev
	$(BIN)/python tests/installed.py lowest

PYTHONS ?= 3.11 3.12 3.13
test-pythons: $(VENV)/.dev
	$(BIN)/python tests/installed.py tested $(PYTHONS)

# Write the golden results of tests/golden anew, for the kind of processor of this machine.
golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --clean --strict

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py
	$(BIN)/zensical serve

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/train_speed.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("sublayer needs Python 3.11 or newer, not " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . -c constraints.txt
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) site docs/reference build dist
