# Everything below does its own set-up into .venv and can be repeated without harm.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-fast check docs bench clean

demo: $(VENV)/.run
	$(BIN)/sublayer demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --durations 5
	$(BIN)/python -m pytest -m slow --durations 10
	$(MAKE) check

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --durations 10

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
