# make serve   set everything up and serve on http://127.0.0.1:8765
# make test    set everything up and run every check and test
# make venv    build .venv alone
# make lint    the checks without the tests;  make fmt puts in order what they would complain of
# make bench   measure, and print ratios

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv serve test lint fmt bench web-test

BIN := .venv/bin
STAMP := .venv/.complete

# A checkout keeps its data to itself, unless the environment or .env says otherwise.
ifeq (,$(shell grep -s '^HEADWAY_DATA_DIR=' .env))
export HEADWAY_DATA_DIR ?= $(CURDIR)/.headway
endif

help:
	@sed -n 's/^# make/make/p' Makefile

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	scripts/setup.sh venv
	@touch $(STAMP)

serve: venv
	$(BIN)/headway serve

test: venv
	scripts/setup.sh test
	@$(MAKE) --no-print-directory lint web-test
	env -u HEADWAY_DATA_DIR -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 3 --dist worksteal

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

web-test:
	scripts/web_test.sh

fmt: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv
	env -u HEADWAY_DATA_DIR $(BIN)/python -m bench
