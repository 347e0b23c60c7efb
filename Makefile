# Everything below does its own set-up into .venv and can be repeated without harm.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-fast test-avx2 test-explore test-pages test-lowest test-pythons golden check docs bench clean

# Two processes of one thread each: what tests compute is too small for more threads.
TESTS := $(BIN)/python -m pytest -n 2
# The tests of what a processor computes with: once more as one without avx512 and products of bfloat16.
COMPUTING := tests/model tests/estimate tests/objective tests/training tests/decode tests/study
AS_AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2

demo: $(VENV)/.run
	$(BIN)/sublayer demo

test: $(VENV)/.dev
	$(TESTS) -m "not slow and not explore and not pages" --durations 5
	$(TESTS) -m "slow and not explore" --dist worksteal --durations 10
	$(MAKE) check

test-fast: $(VENV)/.dev
	$(TESTS) -m "not slow and not explore and not pages" --durations 10

test-avx2: $(VENV)/.dev
	$(AS_AVX2) $(TESTS) -m "not slow and not explore and not pages" --durations 10 $(COMPUTING)

# Every page's commands in the order in which they stand, with small models, and the notebook's cells.
test-pages: $(VENV)/.dev
	$(TESTS) -m pages --dist worksteal --durations 10

# The tests that draw what they try, with other draws each time: what they find, the others keep. And the cases that
# take too long for every time.
test-explore: $(VENV)/.dev
	TESTS_EXPLORE=1 $(TESTS) -m "hypothesis or explore" --dist worksteal --durations 10
	TESTS_EXPLORE=1 $(TESTS) -m slow --dist worksteal tests/study/test_shipped_chains_run.py

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
	$(BIN)/python -m pytest -q tests/test_dead_code.py tests/test_links.py
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
