# The two commands of the README: `make demo` and `make test`. Each makes `.venv` from the lock files first,
# and does it only once.

# The first Python that really runs (a version manager's stand-in may not) and is new enough.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VERSIONS := 3.11 3.12 3.13 3.14
ENV := .venv
BIN := $(ENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-build-isolation

# Tests start many processes: each would compile the package again if it could not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-fast-all soak check bench dist lock clean

demo: $(ENV)/.run
	@$(BIN)/headwater demo demo

test: $(ENV)/.dev test-fast
	$(BIN)/python -m pytest -m "spark or long" --numprocesses 2 --dist worksteal

test-fast: $(ENV)/.dev
	$(BIN)/python -m pytest -m "not spark and not long" --numprocesses 2 --dist worksteal

# The fast part on every other supported Python of this machine: on PATH, of pyenv or of uv. Each has an environment of
# its own from the same lock files.
test-fast-all: $(ENV)/.dev
	@for v in $(VERSIONS); do \
	  if $(BIN)/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$v')"; then continue; fi; \
	  found=; \
	  for p in python$$v "$$HOME"/.pyenv/versions/$$v.*/bin/python$$v \
	      "$$HOME"/.local/share/uv/python/cpython-$$v.*/bin/python$$v; do \
	    if $$p -c 'import ensurepip, sqlite3, ssl' 2>/dev/null; then found=$$p; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "Python $$v: not on this machine, not tested"; continue; fi; \
	  echo "Python $$v: $$found"; \
	  $(MAKE) --no-print-directory ENV=.venv-$$v PYTHON="$$found" test-fast || exit 1; \
	done

# The long forms of the proofs that `make test` has in short: 20 times as many random schedules of the engine, and
# five minutes of random demand, data, changes and kills against real servers.
soak: $(ENV)/.dev
	HEADWATER_EXAMPLES=20 $(BIN)/python -m pytest tests/freshness --numprocesses 2 --dist worksteal
	HEADWATER_SOAK_SECONDS=300 $(BIN)/python -m pytest tests/serve/test_soak.py

check: $(ENV)/.dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/python -m pytest tests/architecture -q

bench: $(ENV)/.bench
	$(BIN)/python benchmarks/run.py

# A wheel and a source archive in dist/.
dist: $(ENV)/.run
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

# What the package needs, a Java where the machine has none, and the package itself.
$(ENV)/.run: lock/build.txt lock/run.txt lock/jvm.txt pyproject.toml
	@echo "setting up $(ENV) (a minute or two, once)"
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { echo "Headwater needs Python 3.11 or newer"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(ENV)
	@$(PIP) -r lock/build.txt
	@$(PIP) -r lock/run.txt
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c "from headwater.spark.java import find_java; find_java()" 2>/dev/null || $(PIP) -r lock/jvm.txt
	@touch $@

$(ENV)/.dev: $(ENV)/.run lock/dev.txt
	@$(PIP) -r lock/dev.txt
	@touch $@

$(ENV)/.bench: $(ENV)/.dev lock/bench.txt
	@$(PIP) -r lock/bench.txt
	@touch $@

# Makes the lock files again from pyproject.toml; needs `uv`.
lock:
	sh lock/make.sh

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis demo build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
