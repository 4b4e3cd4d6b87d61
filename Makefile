# Every command sets up what it needs, with Python 3.11 and make alone; uv is used where there is one.
# `make` owns .venv: it is made anew when the folder has moved, and completed when pyproject.toml has changed.

PYTHON ?= python3
ARGS ?=

UV := $(shell command -v uv 2>/dev/null)
NPM := $(shell command -v npm 2>/dev/null)
HERE := $(shell pwd -P | cksum | cut -d' ' -f1)

BIN := .venv/bin
VENV := .venv/made-by-$(if $(UV),uv,pip)-in-$(HERE)
RUNTIME := .venv/has-runtime
DEV := .venv/has-dev
INSTALL := $(if $(UV),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)
# Servers and hooks that are written in JavaScript; without npm their tests say that they are skipped.
PACKAGES := tests/servers tests/bridges/hooks/programs
SERVERS := $(if $(NPM),$(PACKAGES:%=%/node_modules/.package-lock.json))

# Bytecode is kept, and out of the way, whatever the environment says: compiling all tests anew takes ten seconds.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench crash soak clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile

demo: $(RUNTIME) ## Watch one agent work; ARGS="..." are passed on
	@$(BIN)/interlock demo $(ARGS)

test: $(DEV) $(SERVERS) ## Run every test, and measure coverage
	$(BIN)/python -m pytest -q -n auto --cov --cov-report=
	@$(BIN)/python tests/coverage_floor.py

check: lint ## Check format, lint, types and layers, and run the quick tests
	$(BIN)/python -m pytest -q -n 2 -m "not slow" --hypothesis-profile quick

lint: $(DEV) ## Check format, lint, types and layers
	$(BIN)/ruff format --check --quiet --output-format concise .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(DEV) ## Measure; ARGS="..." are passed on
	$(BIN)/python -m bench $(ARGS)

crash: $(DEV) ## Kill processes at any moment, and look whether anything was lost; ARGS="..." are passed on
	@PYTHONPATH=tests $(BIN)/python -m crash $(ARGS)

soak: $(DEV) ## Live ten thousand lives of a session, step by step; ARGS="--examples N" for more
	$(BIN)/python -m pytest -q -n auto tests/loop/test_soak.py --examples 10000 $(ARGS)

clean: ## Remove the environment, caches and reports
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache $(PACKAGES:%=%/node_modules)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and $(PYTHON) is %d.%d. Name another one: make PYTHON=..." % sys.version_info[:2])'
	@echo 'Setting up .venv with $(if $(UV),uv,pip)'
	@$(PYTHON) -m venv --clear $(if $(UV),--without-pip) .venv
	@touch $@

$(RUNTIME): $(VENV) pyproject.toml
	@echo 'Installing the package'
	@$(INSTALL) --editable '.[openai]'
	@touch $@

# pip reads dependency groups since 25.1; Python 3.11 brings an older one.
$(DEV): $(RUNTIME)
	@echo 'Installing what tests and checks need'
	@$(if $(UV),,$(INSTALL) --upgrade 'pip>=25.1')
	@$(INSTALL) --group dev
	@touch $@

%/node_modules/.package-lock.json: %/package-lock.json
	@echo 'Installing what the tests in $* need'
	@if npm ci --prefix $* --loglevel=error --no-audit --no-fund >/dev/null; then mkdir -p $(@D) && touch $@; \
	else echo 'They cannot be installed: the tests that need them say that they are skipped'; test -z "$$CI"; fi
