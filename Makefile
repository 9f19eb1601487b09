# make demo: the main job.  make test: what guards the product.  make test-long: frameworks, installs,
# clusters, long runs.  make test-all: both.  make fast: those of a developer's loop, in minutes.
# Each sets up .venv first, once.
# make coverage: the tests of make test, and which lines and branches they reach in one process each.
# make docs: the documentation as a site, in site/.
# make bench: what this project must know of its own speed; BENCH='--only wire' measures one group.
# PYTHON is any Python from 3.11 on: make demo PYTHON=python3.12
# WORKERS is how many processes run the tests, of which each has ranks of its own: make test WORKERS=4

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt
TEST := $(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test test-long test-all fast coverage bench docs clean

demo: $(VENV)/.installed
	$(VENV)/bin/hooktrace demo

test: $(VENV)/.installed-dev
	$(TEST) -m 'not long' $(COVER)

test-long: $(VENV)/.installed-dev
	$(TEST) -m long

test-all: test test-long

fast: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest -n auto --dist loadfile -m 'not slow and not browser'

coverage: COVER := --cov --cov-report=term:skip-covered
coverage: test

bench: $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.benchmarks $(BENCH)

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'hooktrace needs Python 3.11 or newer; pass one: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python $(INPUTS)
	$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.python $(INPUTS)
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(PIP) -e '.[docs]'
	@touch $@

clean:
	rm -rf site $(VENV) .venv-otlp .venv-perfetto .venv-frameworks runs
