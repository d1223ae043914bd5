# On a machine with nothing but Python 3.11+, make and a package index:
#   make demo    make test    make help

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-all lint bench budget soak chaos eager lowest dist clean
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# The first of these that is new enough and can make virtual environments.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$python && break; done)

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo 'Arguments for the program behind demo, test and bench: make demo ARGS="--help"'

demo: .venv/.demo-installed ## Run a year of real flights through Spark and the queue.
	@$(BIN)/python -m examples.flights $(ARGS)

test: .venv/.java-archived ## Run the tests; THOROUGH=1 for all that CI runs.
	@$(BIN)/python -m tests $(ARGS)

test-all: .venv/.dev-installed ## Run them on each Python from 3.11 to 3.14 that is here; SPARK=1 with Spark.
	@$(BIN)/python -m tests.every_python $(ARGS)

lint: .venv/.dev-installed ## Check style, types and the layers between packages.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.verify_types
	@$(BIN)/python -m tests.limits

bench: .venv/.dev-installed ## Run the benchmarks; QUICK=1 for a sketch.
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

docs: .venv/.dev-installed ## Build the documentation as a site: out/docs/index.html.
	@$(BIN)/python docs/site/build.py

budget: .venv/.dev-installed ## Compare the hot paths' instructions with their budget.
	@$(BIN)/python -m benchmarks.budget $(ARGS)

soak: .venv/.dev-installed ## Ten minutes of mixed faults; SOAK_SECONDS=60 for less.
	@$(BIN)/python -m tests.stress.soak

chaos: .venv/.java-archived ## A quarter of an hour of kills in a Spark cluster; KILLS=8 for less.
	@$(BIN)/python -m tests.spark.chaos --kills $(or $(KILLS),36) $(ARGS)

eager: .venv/.dev-installed ## Run the core's tests with eager tasks, on Python 3.12+.
	@$(BIN)/python -m tests.stress.eager $(ARGS)

lowest: .venv/.dev-installed ## Run some tests with the lowest versions of what is needed.
	@$(BIN)/python -m tests.lowest $(ARGS)

dist: .venv/.dev-installed ## Build the package, and try the wheel in a bare environment.
	@$(BIN)/python -m tests.dist

clean: ## Remove .venv and everything else that was generated.
	rm -rf .venv .venv-* .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache build dist out spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.demo-installed: pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "This needs Python 3.11 or newer with venv" \
		"(on Debian: apt install python3-venv). PYTHON=... picks one." >&2; exit 1; }
	@echo "Installing into .venv: Spark, a Java runtime, drivers;" \
		"a minute or two the first time."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --editable . --group demo
	@touch $@

.venv/.dev-installed: .venv/.demo-installed
	@echo "Installing the test and lint tools into .venv."
	@$(PIP) install --group dev
	@touch $@

.venv/.java-archived: .venv/.dev-installed
	@echo "Making an archive of Spark's Java classes: tests start it often."
	@$(BIN)/python -m tests.support.fast_java
	@touch $@
