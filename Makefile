# Needs only Python 3.11 or later and make; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest --numprocesses=auto

.PHONY: demo test test-slow bench bench-networks bench-race bench-sweep bench-throughput docs package lint types format clean

demo: .venv/installed-cli
	$(BIN)/varynorm demo

test: lint types
	$(PYTEST) -m "not slow"

test-slow: .venv/installed-test
	$(PYTEST) -m slow

bench: .venv/installed-bench
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.weight

bench-networks: .venv/installed-bench
	$(BIN)/python -m benchmarks.networks

bench-sweep: .venv/installed-bench
	$(BIN)/python -m benchmarks.sweep

# DATA is a folder of LIBSVM files; without it, the streams that scikit-learn and River ship.
bench-race: .venv/installed-race
	$(BIN)/python -m benchmarks.race $(if $(DATA),--data $(DATA))

# DATA is a LIBSVM file, such as a9a; without it, drawn rows of its shape.
bench-throughput: .venv/installed-race
	$(BIN)/python -m benchmarks.throughput $(if $(DATA),--data $(DATA))

# Built offline; the pages need no network either. Open out/docs/index.html.
docs: .venv/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs out/docs

# The wheel and the source distribution, and a fresh environment that the wheel is tried in.
package: .venv/installed-test
	$(BIN)/python -m hatchling build --directory dist
	$(BIN)/python -m pytest tests/test_package.py

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-test
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed-cli: pyproject.toml | .venv/bin/python
	$(PIP) install --editable '.[cli]'
	touch $@

.venv/installed-docs: pyproject.toml | .venv/bin/python
	$(PIP) install --editable '.[docs]'
	touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(PIP) install --editable '.[test]'
	touch $@

.venv/installed-bench: pyproject.toml | .venv/bin/python
	$(PIP) install --editable '.[bench]'
	touch $@

.venv/installed-race: pyproject.toml | .venv/bin/python
	$(PIP) install --editable '.[race]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist docs/colabs
