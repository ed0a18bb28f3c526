# make help lists the targets. Only Python 3.11-3.13 and make are needed; everything else lands in .venv.
BOOT ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PYTHON := $(VENV)/bin/python
# Byte code is kept, whatever the environment says: pytest rewrites every test file in each of its processes otherwise.
# NumPy multiplies in one thread, as in Headway's own processes: more of them wait for each other in a loop.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest
HEADWAY := $(VENV)/bin/headway
FLIGHTS := examples/flights
DIGITS := examples/digits
OWN_STEP := examples/own-step
MONITORED := examples/predict-and-monitor
STAMP := $(VENV)/.installed
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo digits own-step predict-and-monitor quick test long servers chaos soak browser gpu flink spark check format bench docs dist versions ops up down golden clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 22

setup: $(STAMP) ## make .venv with the tested versions

$(PYTHON):
	@test -n "$(BOOT)" || { echo "Headway needs Python 3.11, 3.12 or 3.13 (none found; or name one: make BOOT=/path/to/python)"; exit 1; }
	@$(BOOT) -m venv $(VENV)

# Byte-compiled packages: without them every process that imports TensorFlow pays seconds for it.
COMPILE := PYTHONDONTWRITEBYTECODE= $(PYTHON) -m compileall -q -j 0 $(VENV)/lib headway beam_jobs tfcore flows >/dev/null 2>&1 || true

$(STAMP): pyproject.toml constraints.txt | $(PYTHON)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test,check]'
	@$(COMPILE)
	@touch $@

# The examples need neither tests nor checks; who has installed those has all. pip says what it does, since it takes minutes.
$(STAMP)-examples: pyproject.toml constraints.txt | $(PYTHON)
	@test $(STAMP) -nt pyproject.toml || echo "Installing TensorFlow and all else that Headway needs into $(VENV), once; this takes minutes:"
	@test $(STAMP) -nt pyproject.toml || $(PYTHON) -m pip install --disable-pip-version-check --progress-bar off --no-compile -c constraints.txt -e '.[examples]'
	@$(COMPILE)
	@touch $@

demo: $(STAMP)-examples ## real flights: train on nine months, then retrain with one more
	@$(PYTHON) $(FLIGHTS)/demo.py

digits: $(STAMP)-examples ## scikit-learn's 1,797 images of digits: from PNG files to a promoted model
	@$(PYTHON) $(DIGITS)/prepare.py
	@$(PYTHON) -P -m flows.cli run $(DIGITS)

own-step: $(STAMP)-examples ## a model with a loss and a training step of its own, on real flights
	@$(PYTHON) $(OWN_STEP)/prepare.py
	@$(PYTHON) -P -m flows.cli run $(OWN_STEP)

predict-and-monitor: $(STAMP) ## days of flights land: each is scored, drift and late labels raise alarms, a retrain follows
	@$(PYTHON) $(MONITORED)/story.py

quick: $(STAMP) ## the tests that need no TensorFlow, no Beam and no server: under a minute
	$(PYTEST) -n 3 --dist loadfile --quick

ELSEWHERE := server or chaos or soak or flink or spark or browser
# Five processes for two cores: with three, tests that wait for servers, processes and locks left 30% of the cores idle.
test: $(STAMP) ## the tests; long ones and those with a server, faults, a browser or Java have targets of their own
	$(PYTEST) -n 5 --dist loadfile -m "not ($(ELSEWHERE) or long)"

long: $(STAMP) ## tests of seconds to a minute each: whole trainings, memory, simulations, the docs as they are typed
	$(PYTEST) -n 5 --dist loadfile -m "long and not ($(ELSEWHERE))"

servers: $(STAMP) ## what is typed on a real Prefect server with workers (needs PostgreSQL)
	$(PYTEST) -n 2 --dist loadfile --no-skips -m "server and not chaos and not soak" $(if $(LEAVE_OUT),-k "not ($(LEAVE_OUT))")

chaos: $(STAMP) ## trainings and promotions whose processes are killed again and again
	$(PYTEST) -n 3 --dist loadgroup --no-skips -m chaos $(if $(LEAVE_OUT),-k "not ($(LEAVE_OUT))") -p tests.chaos.table $(if $(WRITE),--faults-into docs/reliability.md)

soak: $(STAMP) ## fifty scheduled runs with a fault in half of them, a thousand commits and promotions: about forty minutes
	$(PYTEST) -n 0 --no-skips -m soak -s -p tests.chaos.table tests/chaos tests/headway/storage

$(STAMP)-browser: $(STAMP)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@touch $@

browser: $(STAMP)-browser ## pages in a headless Chromium, which has to be installed
	$(PYTEST) -n 2 --dist loadfile --no-skips -m browser

gpu: $(STAMP) ## what needs a GPU, and whole pipelines on one
	TF_FORCE_GPU_ALLOW_GROWTH=true $(PYTEST) -n 3 --dist loadfile --gpu tests/tfcore/test_gpu.py tests/flows/test_end_to_end.py \
	  tests/flows/test_digits.py tests/flows/test_ranking.py tests/flows/test_training_options.py

flink: $(STAMP) ## Beam jobs on a local Flink, and on machines of namespaces (needs Java 17, Maven and root)
	$(PYTEST) -n 2 --dist loadfile --no-skips -m flink $(if $(LEAVE_OUT),-k "not ($(LEAVE_OUT))") tests/infra

spark: $(STAMP) ## Beam jobs on a Spark inside its job server (needs Java 17 and Maven)
	$(PYTEST) --no-skips -m spark tests/infra

check: $(STAMP) ## lint, format, types, import rules
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-cache

format: $(STAMP) ## format the code
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

ops: $(STAMP) ## compile the C++ op (needs g++; everything works without it)
	$(PYTHON) -m tfcore.ops.compile

# Tables and models that only benches compare with; make test needs none of them.
$(STAMP)-bench: $(STAMP)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

bench: $(STAMP)-bench ## every bench, side by side, with ratios (about two hours)
	$(PYTHON) bench/ingest.py
	$(PYTHON) bench/ingest.py --text
	$(PYTHON) bench/gate.py --drawn --repetitions 200
	for name in reader train pipeline predict serve hostile stats storage ranking graph_functions images gate coverage judge \
	  orchestration init models leaks width capacity walks; do $(PYTHON) bench/$$name.py || exit 1; done

$(STAMP)-docs: $(STAMP)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(STAMP)-docs ## the documentation as a site in build/site; warnings are errors
	$(PYTHON) infra/site/build.py

$(STAMP)-dist: $(STAMP)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dist]'
	@touch $@

dist: $(STAMP)-dist ## wheel and sdist in dist/, installed and tried in a new environment
	$(PYTHON) infra/dist.py

versions: $(STAMP)-dist ## the quick tests and a pipeline with the lowest and the newest versions that are allowed
	$(PYTHON) infra/dist.py --lowest --tests
	$(PYTHON) infra/dist.py --tests

golden: $(STAMP) ## renew the golden files after a change that is meant
	HEADWAY_RENEW_GOLDEN=1 $(PYTHON) -m pytest -k golden

up: $(STAMP) ## Prefect server, worker and deployments on this machine
	@$(PYTHON) $(FLIGHTS)/prepare.py
	@$(PYTHON) -P infra/one_host.py up $(FLIGHTS) --sqlite --workers 1

down: $(STAMP) ## stop what `make up` started
	@$(PYTHON) -P infra/one_host.py down

clean: ## remove stores and data that the examples made
	rm -rf $(FLIGHTS)/data $(FLIGHTS)/store $(DIGITS)/data $(DIGITS)/store $(OWN_STEP)/data $(OWN_STEP)/store .headway \
	  $(MONITORED)/incoming $(MONITORED)/labelled $(MONITORED)/scored $(MONITORED)/store
