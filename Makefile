# Everything sets itself up: `make demo` and `make test` work on a fresh checkout with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint types unit attack bench format clean

help:            ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

demo: $(READY)   ## eight methods on CIFAR-10 in snow, contaminated with MNIST: a table and a picture
	$(BIN)/python examples/demo.py

test: lint types unit  ## everything a change has to pass

lint: $(READY)   ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## strict types
	$(BIN)/mypy

unit: $(READY)   ## tests
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

attack: $(READY) ## hostile calls, files, archives, kills, threads and pages: what was tried, what did not hold
	$(BIN)/python -m tests.attack
	OWTTT_TEST_FULL=1 $(BIN)/python -m pytest tests/models/test_timm.py

bench: $(READY)  ## speed, as ratios measured in one run: methods, several processes, the service
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/service.py

format: $(READY) ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## forget the virtual environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "owttt needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --editable '.[timm]' || echo 'timm cannot be had here: its tests are skipped.'
	$(BIN)/python -m pip install --quiet --editable '.[ray]' || echo 'Ray cannot be had here: its tests are skipped.'
	touch $@
