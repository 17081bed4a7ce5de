# Everything is made from here; Python 3.11 or newer and an index of packages are all it needs.
# `make` alone lists the targets.

PYTHON ?= python3
SEEDS ?= 20000
PORT ?= 8787
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help serve test check format docs examples bench soak lock clean bubblewrap

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: .venv/.serve ## run the server, with a worker, at http://127.0.0.1:8787 or on another PORT
	exec $(BIN)/stepwell serve --port $(PORT)

# The tests make thousands of stores and processes: in memory if there is enough of it, and with
# modules that are compiled once, whatever the surroundings say.
ROOM := $(shell df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
test: export PYTHONDONTWRITEBYTECODE :=
test: export TMPDIR := $(shell test "0$(ROOM)" -ge 4 && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

test: check bubblewrap ## check, then all tests, on SQLite and on a real PostgreSQL
	$(BIN)/python -m pytest -n 3 --dist worksteal tests

check: .venv/.dev ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

# Scripts are isolated by it. Without it their tests fail: they try to break out of a real one.
bubblewrap:
	@command -v bwrap >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	{ apt-get -qq install -y bubblewrap || \
	  { apt-get -qq update && apt-get -qq install -y bubblewrap; }; } >/dev/null 2>&1 || \
	echo "bubblewrap could not be installed; the tests of scripts will fail." >&2

format: .venv/.dev ## write the format and the lint fixes that are safe
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: .venv/.dev ## write the reference pages that come from the code
	$(BIN)/python docs/generate.py

examples: .venv/.dev ## record the answers that the OpenAPI document shows
	$(BIN)/python -m tests.surfaces.record_examples

bench: .venv/.dev ## compare with other engines
	$(BIN)/python benchmarks/run.py

soak: .venv/.dev ## simulate SEEDS seeds (20000)
	$(BIN)/python -m stepwell.testing.simulate --seeds $(SEEDS)

# Locked versions stay as they are unless UPGRADE=1. serve.txt is bound to the versions of
# dev.txt, because both are installed into one .venv.
COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	$(if $(UPGRADE),--upgrade)

lock: .venv/.dev ## write requirements/*.txt anew (UPGRADE=1: to the newest versions)
	$(COMPILE) --extra all --group dev -o requirements/dev.txt
	$(COMPILE) --extra all --group build -c requirements/dev.txt -o requirements/serve.txt

clean: ## remove .venv and all caches
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Two stamps over one .venv: what it takes to run, and on top of it what it takes to
# develop, so that `make serve` does not fetch a PostgreSQL server.
.venv/.serve: pyproject.toml requirements/serve.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	"Stepwell needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...")'
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) install --require-hashes -r requirements/serve.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.serve requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
