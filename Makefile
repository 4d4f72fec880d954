# `make` alone lists the targets. Every target sets up what it needs: a virtual environment in .venv with the pinned
# tools. Nothing else has to be installed beforehand but Python 3.11+, make and Node (pyright runs on it).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Test processes at once. More than there are cores: most tests wait for processes, sockets and clocks.
JOBS   ?= 4

# Tests start hundreds of processes: what those import is compiled once, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 26

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Treadle needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

setup: $(READY)  ## the virtual environment, with everything the other targets need

demo: $(READY)  ## twenty seconds of durable jobs on a SQLite file, a killed worker included
	$(BIN)/treadle demo --keep
	@echo; echo "In this checkout the command is $(BIN)/treadle; after \`. $(BIN)/activate\` it is treadle."

check: $(READY)  ## format, lint, types (pyright and mypy, strict), layers
	$(BIN)/ruff format --check src tests benchmarks examples docs
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/pyright

quick: $(READY)  ## checks, core, memory and SQLite conformance: under two minutes
	$(BIN)/ruff check src tests
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -n $(JOBS) tests/core tests/storages tests/runtime -k 'not Postgres and not postgres'

unit: $(READY)
	$(BIN)/pytest -q -n $(JOBS) tests --ignore=tests/journeys --ignore=tests/journeys_postgres --ignore=tests/core --ignore=tests/soak --ignore=tests/simulation --ignore=tests/browser --ignore=tests/api_fuzz
	# Not by pytest-cov: our own pytest plugin is imported before it, and the core with it.
	$(BIN)/coverage run -m pytest -q tests/core
	$(BIN)/coverage report --skip-covered --fail-under=100

journeys: $(READY)  ## real processes, really killed
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup tests/journeys tests/journeys_postgres

simulation: $(READY)
	$(BIN)/pytest -q -n 2 tests/simulation

soak-short: $(READY)
	$(BIN)/pytest -q -n 2 --dist loadgroup tests/soak

test: check unit journeys simulation soak-short fuzz browser  ## everything that gates a change

test-postgres-versions: $(READY)  ## the PostgreSQL tests on servers of versions 14 to 18, with a table
	JOBS=$(JOBS) $(BIN)/python -m tests.postgres_versions

EXAMPLES ?= 2000
model: $(READY)  ## random programs on all three storages, and the explorer of the protocols: EXAMPLES=2000
	MODEL_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -q -o faulthandler_timeout=0 tests/model

interleavings: $(READY)  ## every pair of verbs, every order of their statements, on PostgreSQL and SQLite
	INTERLEAVINGS=all $(BIN)/pytest -q -n $(JOBS) -o faulthandler_timeout=0 tests/interleavings

sabotage: $(READY)  ## broken storages, each of which the conformance suite must catch
	$(BIN)/pytest -q tests/storages/test_sabotage.py -v

mutants: $(READY)  ## mutation testing of core/lifecycle.py
	$(BIN)/mutmut run
	$(BIN)/mutmut results

ASSETS := src/treadle/web/static/lib/htmx.min.js

$(ASSETS): package.json package-lock.json hatch_build.py
	$(PYTHON) hatch_build.py
	touch $(ASSETS)

assets: $(ASSETS)  ## the dashboard's libraries, from npm by the lockfile

CHROMIUM ?= /usr/bin/chromium
$(CHROMIUM):
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq; apt-get install -y --no-install-recommends chromium; fi
	@test -x $(CHROMIUM) || { echo "the browser tests need Chromium: apt-get install chromium, or make … CHROMIUM=/path"; exit 1; }

browser: $(READY) $(ASSETS) $(CHROMIUM)  ## the dashboard in a real Chromium: pages, journeys, axe
	CHROMIUM=$(CHROMIUM) $(BIN)/pytest -q -n 3 tests/browser  # a Chromium each: more would only wait for one another

screenshots: $(READY) $(ASSETS) $(CHROMIUM)  ## pictures of every page on a living system, light and dark, into docs/screenshots
	CHROMIUM=$(CHROMIUM) $(BIN)/python -m tests.browser.screenshots

docs: $(READY)  ## write the generated parts of the documentation anew
	$(BIN)/python docs/generate.py

bench: $(READY)  ## jobs per second beside the nearest peers on SQLite and PostgreSQL: under five minutes, writes no page
	$(BIN)/python -m benchmarks --suite sqlite --brief
	$(BIN)/python -m benchmarks --suite postgres --brief --rounds 2

bench-sqlite: $(READY)  ## everything on SQLite, beside Huey; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks --suite sqlite

bench-postgres: $(READY)  ## everything on PostgreSQL, beside five peers; writes docs/benchmarks-postgres.md
	$(BIN)/python -m benchmarks --suite postgres

bench-dashboard: $(READY)  ## how long the dashboard's pages take with a million jobs, and whether claims notice
	$(BIN)/python -m benchmarks.dashboard

REDIS ?= /usr/bin/redis-server
$(REDIS):
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq; apt-get install -y --no-install-recommends redis-server; fi
	@command -v redis-server >/dev/null || { echo "the Redis suite needs a Redis server: apt-get install redis-server"; exit 1; }

bench-redis: $(READY) $(REDIS)  ## us on PostgreSQL beside six peers on Redis; writes docs/benchmarks-redis.md
	$(BIN)/python -m benchmarks --suite redis

bench-all: bench-sqlite bench-postgres bench-redis  ## all suites, peers and workloads, with pages and plots

FUZZ ?= 2
fuzz: $(READY)  ## text from anybody, coverage-guided: FUZZ=2 seconds for each target; the HTTP API in every role: API_EXAMPLES=50
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ)
	API_EXAMPLES=$(API_EXAMPLES) $(BIN)/pytest -q -n 2 tests/api_fuzz

audit: $(READY)  ## known holes in what we depend on; asks the advisory database, so it needs the network
	$(BIN)/pip-audit --skip-editable

SEEDS ?= 100000
START ?= 0
simulate: $(READY)  ## a campaign of the simulation on all cores: SEEDS=100000 START=0
	$(BIN)/python -m treadle.testing.simulation --seeds $(SEEDS) --start $(START)

ablations: $(READY)  ## each safeguard switched off, and the seed at which the simulation notices
	$(BIN)/python -m treadle.testing.simulation.ablations

MINUTES ?= 10
STORAGE ?= both
soak: $(READY)  ## real workers under a nemesis: MINUTES=10 STORAGE=sqlite|postgres|both SEED=… WRITE=1 (into the docs)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --storage $(STORAGE) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

crash-table: $(READY)  ## kill -9 against the peers and against us; writes docs/guarantees.md
	$(BIN)/python -m benchmarks.crash --write

clean:
	rm -rf $(VENV) .bench-venvs .postgres-servers .mypy_cache .ruff_cache .hypothesis mutants dist

.PHONY: assets browser screenshots help setup demo check quick unit journeys model interleavings simulation simulate ablations soak soak-short crash-table test test-postgres-versions fuzz audit sabotage mutants docs bench bench-all bench-sqlite bench-postgres bench-redis clean
