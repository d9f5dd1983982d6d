# make demo: set everything up, measure this machine, end with a table and runs/demo/report.html
# make test: set everything up, then lint, type-check and test
# make docs: write the tables of settings in docs/reference.md anew, from conf/, the schemas of answers, from their types,
#   and the tables of benchmarks, from their rows
# make fuzz: 20,000 mutated traces, and as many logs, run folders, configs and flight records (an hour; CASES=500 for a while)
# make test-jobs: most tests that start whole jobs, as users do (ten minutes)
# make test-cluster: Slurm, MPI, several hosts, and faults from outside, where they can be had

# each process of a test would compile what it imports anew
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TOGETHER := "not cluster and not long and not quiet and not job"
# what fails on a machine that has others' work to do is run once more, alone; what fails then, too, has failed
AGAIN = echo "Once more, alone, what failed (its first failure stands above):" && $(BIN)/pytest --last-failed --maxfail 3 -rs

.PHONY: demo docs fuzz test test-jobs test-cluster lint lint-style lint-layers lint-types test-together setup clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt collectives/transports/issue.c scalescope/scaling/replay/engine/events.c scalescope/scaling/trace/fields/fields.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "scalescope needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the tested versions into .venv (a minute or two) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mpich,submitit,dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/scalescope demo

## all at once, each one's words in one piece; whichever fails, make fails
lint: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint-types lint-style lint-layers

lint-style: $(READY)
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .

lint-layers: $(READY)
	@$(BIN)/lint-imports

lint-types: $(READY)
	@$(BIN)/mypy --no-error-summary

docs: $(READY)
	@$(BIN)/python -m tests.config_tables
	@$(BIN)/python -m tests.answer_schemas
	@$(BIN)/python benchmarks/tables.py

## tests often wait for their processes: what lints takes what they leave. What times something runs after both,
## from the files that say so: loading all of them takes longer than those tests
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 test-together lint-types lint-style lint-layers
	@$(BIN)/pytest -m "quiet and not job" -rs $$(grep -l "mark.quiet" tests/test_*.py) || { test $$? = 1 && $(AGAIN) -m "quiet and not job"; }
	@echo "Not run here, since it takes long: most tests that start whole jobs (make test-jobs); Slurm, MPI, several hosts, faults (make test-cluster)."

test-together: $(READY)
	@$(BIN)/pytest -m $(TOGETHER) -n 2 --dist worksteal -rs || { test $$? = 1 && $(AGAIN) -m $(TOGETHER); }

## whole jobs, as users start them: every strategy, resuming, signals, W&B, installed packages, the worked examples; what compiles
test-jobs: $(READY)
	@$(BIN)/pytest -m "job and not quiet" -n 2 --dist worksteal -rs || { test $$? = 1 && $(AGAIN) -m "job and not quiet"; }
	@$(BIN)/pytest -m "job and quiet" -rs || { test $$? = 1 && $(AGAIN) -m "job and quiet"; }

## they mostly wait: files of tests go on beside each other. Needs root; Debian's slurm-wlm, munge (slurmdbd, mariadb-server for accounts), openmpi-bin, iproute2
test-cluster: $(READY)
	@$(BIN)/pytest -m "cluster or long" -n 3 --dist loadfile -rs || { test $$? = 1 && $(AGAIN) -m "cluster or long"; }

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz.campaign $(or $(CASES),20000)

clean:
	rm -rf .venv build *.egg-info
