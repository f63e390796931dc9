# `make run` and `make test` install what they need.  The other targets are for work on detent itself.
# pip installs everything into .venv, without root.  To use another Python and another folder:
# make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 120
FIRST ?= 1000
# Most modules of the packages are never imported: Python compiles the others when they are.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# Tests and benchmarks start thousands of interpreters.  Without cached bytecode, each would compile detent.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test tests programs checked types lint fmt test-cover sim mutants chaos chaos-faults storm postgres-versions redis-versions model calendar crontabs bench docs clean

run: $(VENV)/ready ## an example with the dashboard: jobs that fire every few seconds; Ctrl-C ends it
	@echo "Running the jobs of examples/detent.yaml: one line for each fire that ends, and for each attempt that fails."
	@$(BIN)/detent run -f examples/detent.yaml --store sqlite:///.detent/example.db --dashboard

test: $(BIN)/pip ## lint, types and all tests; as root on Debian it also installs the programs that tests use
	@$(MAKE) --no-print-directory -j 3 types tests

# apt installs beside pip, and mypy runs beside the tests.
tests: programs checked
	@$(BIN)/python -m pytest -n 6 --dist worksteal

programs:
	@bash tools/ensure-programs

checked: $(VENV)/dev
	@$(BIN)/ruff check .
	@$(BIN)/python -m compileall -q src
	@# This compiles the tests and their imports once; otherwise each test worker would compile them.
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

types: $(VENV)/dev
	@$(BIN)/mypy

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-cover: $(VENV)/dev
	$(BIN)/python -m pytest -n 8 --dist worksteal --cov=detent --cov-report=term-missing:skip-covered

sim: $(VENV)/dev ## many seeds of the simulator: make sim SEEDS=1000 FIRST=0
	$(BIN)/python -m detent.testing.sim.campaign seeds $(FIRST) $(SEEDS)

mutants: $(VENV)/dev ## planted faults that directed tests, the rules of the stores or the simulator must find
	$(BIN)/python -m pytest tests/stores/engine/test_commit_checks.py tests/stores/engine/test_parking.py
	$(BIN)/python -m detent.testing.sim.campaign mutants

chaos: $(VENV)/dev ## real nodes and stores under a fault per second: make chaos CHAOS='redis --minutes 20 --seed 7'
	$(BIN)/python -m tests.chaos.run $(CHAOS)

chaos-faults: $(VENV)/dev ## planted faults that the judge of chaos runs must find
	$(BIN)/python -m tests.chaos.find_planted $(PLANTED)

storm: $(VENV)/dev ## messages through workers that are killed: make storm STORM='postgres --messages 20000'
	$(BIN)/python -m tests.worker.storm $(STORM)

postgres-versions: $(VENV)/dev ## the store's tests on every PostgreSQL since 13; needs npm: make postgres-versions MAJORS='13 18'
	$(BIN)/python -m tests.stores.postgres.versions $(MAJORS)

redis-versions: $(VENV)/dev ## the store's tests on redis-py 5 to 8: make redis-versions VERSIONS='5.0.0 8.1.0'
	$(BIN)/python -m tests.stores.redis.versions $(VERSIONS)

model: ## the whole state space of model/claims.pml; needs spin and gcc: make model MODEL=--small
	@$(PYTHON) model/check.py $(MODEL)

calendar: $(VENV)/dev ## every change of offset from 2000 to 2037, against a brute-force oracle
	$(BIN)/python tests/schedules/offset_changes.py

crontabs: $(VENV)/dev ## three hosts' crontabs, one store, one call an instant: make crontabs CRONTABS='--instants 24 --real'
	$(BIN)/python tests/trigger/three_crontabs.py $(CRONTABS)

bench: $(VENV)/bench ## speed, beside the peers: make bench BENCH='commands --full'
	$(BIN)/python bench/all.py $(BENCH)

docs: $(VENV)/dev ## the generated parts of docs/reference
	$(BIN)/python tools/reference.py

clean:
	rm -rf $(VENV) .detent .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $$($(PYTHON) --version) is too old; run: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); bash tools/ensure-venv $(PYTHON) && $(PYTHON) -m venv $(VENV); }

# The virtual environment with the package; updated when pyproject.toml changes.
$(VENV)/ready: pyproject.toml | $(BIN)/pip
	@echo "Installing detent with PyYAML, rich, shtab, tzdata, Starlette and uvicorn into $(VENV) ..."
	@$(INSTALL) -e '.[web]'
	@touch $@

$(VENV)/dev: pyproject.toml | $(BIN)/pip
	@echo "Installing detent and what lint, types and tests need into $(VENV): this takes a minute or more ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/ready

$(VENV)/bench: $(VENV)/dev
	@echo "Installing the other schedulers that the benches compare with into $(VENV) ..."
	@$(INSTALL) -e '.[bench,redis,postgres]'
	@for extra in bench-queues bench-queues-older; do \
	  $(BIN)/python -m venv $(VENV)/$$extra && \
	  $(VENV)/$$extra/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$$extra]" || exit 1; \
	done
	@touch $@
