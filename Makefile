# Every command of the project. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-fast check fmt lint types imports lock bench bench-expiry bench-latency bench-import bench-webhooks bench-reminders bench-bridge clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## a virtual environment with everything, from the lock file

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## the main job on real services, in under a minute
	@$(BIN)/holdfast demo

up: setup ## keep everything running under .holdfast/ until Ctrl-C
	@$(BIN)/holdfast up

test: setup ## the whole test suite: what is quick first, then what starts and kills whole systems
	$(BIN)/pytest -m "not system" -n 3
	$(BIN)/pytest -m system -n 2 --dist loadfile

test-fast: setup ## the suite without the tests that start workers and brokers
	$(BIN)/pytest -m "not system" -n 3

check: lint types imports ## lint, types, import contracts

lint: setup ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

imports: setup ## import contracts
	$(BIN)/lint-imports

fmt: setup ## format and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-expiry bench-latency bench-import bench-webhooks bench-reminders bench-bridge ## every benchmark

bench-expiry: setup ## holds expired per second, beside the ceiling and a plain Celery project
	$(BIN)/python -m bench.expiry $(ARGS)

bench-latency: setup ## lateness of expiry and of place with a million live holds
	$(BIN)/python -m bench.latency $(ARGS)

bench-import: setup ## a million holds taken in from a file
	$(BIN)/python -m bench.importing $(ARGS)

bench-webhooks: setup ## webhooks delivered per second, beside bare requests and a plain Celery project
	$(BIN)/python -m bench.webhooks $(ARGS)

bench-reminders: setup ## reminders sent per second, beside what their threads can send; an idle tick before a million
	$(BIN)/python -m bench.reminders $(ARGS)

bench-bridge: setup ## holds carried over the bridge per second, beside one call at a time and the sweep
	$(BIN)/python -m bench.bridge $(ARGS)

lock: setup ## resolve the dependencies anew, for every Python and platform
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	  --upgrade --output-file requirements.lock pyproject.toml requirements.build

clean: ## remove the virtual environment and caches (never .holdfast/, which holds data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
