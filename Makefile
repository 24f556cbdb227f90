# `make` lists the targets. Everything is installed in .venv, in two stages:
# what perfc needs to run, and what its tests need besides. Both are repeated
# only when pyproject.toml has changed.

PYTHON ?= python3
DEMO_MODEL ?= examples/models/dlrm_mlperf.onnx
DEMO_ARGS ?= --batch 2048 --target a100
PYTEST_ARGS ?=
FUZZ_ARGS ?= --inputs 300000
DEVICE ?= cpu
OUT ?= build/collected-$(DEVICE)
COLLECT_ARGS ?= --window --seconds 1500
DATA ?= ../shared/data
FIT_ARGS ?=
RATIOS_ARGS ?=
ACCURACY_ARGS ?=

BIN := .venv/bin
CORE := .venv/.installed-core
TEST := .venv/.installed-test
# What a machine with a GPU may have: an older PyTorch than the tests', nothing of perfc.
REHEARSAL := build/rehearsal
REHEARSED := torch==2.11.0 numpy==2.5.2 onnx==1.23.1 attrs click networkx pyarrow \
    nvidia-ml-py pytest hypothesis

# Present while a stage runs: found later, it means that the stage was cut off.
UNFINISHED := .venv/.unfinished

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pyright would ask the network for its newest version on every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo install test lint types unit selfcheck selfcheck-short slow fuzz docs
.PHONY: bench bench-ratios accuracy collect rehearse compat fit fixtures format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(CORE) ## Predict the time of one model (installs perfc, no torch)
	$(BIN)/perfc analyze $(DEMO_MODEL) $(DEMO_ARGS)

install: $(TEST) ## Install perfc and everything its tests need

test: lint types unit docs selfcheck-short ## Run every check that a change must pass

lint: $(TEST) ## Check style, format and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(TEST) ## Check the types of the package and of the tests
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/mypy benchmarks/collection benchmarks/collect.py \
	    benchmarks/training benchmarks/fits benchmarks/fit*.py benchmarks/corrections.py \
	    benchmarks/scoring benchmarks/accuracy.py benchmarks/interval_coverage.py \
	    benchmarks/ratios.py benchmarks/speed/warm.py benchmarks/speed/scale.py
	$(BIN)/mypy $(filter-out %/triton_matmul.py,$(wildcard examples/autotune/*.py))
	$(BIN)/pyright --pythonpath $(BIN)/python

unit: $(TEST) ## Run the tests, without the slow ones
	$(BIN)/pytest -n 2 $(PYTEST_ARGS)

selfcheck: $(TEST) ## Calibrate this CPU, predict steps of three models, run them
	$(BIN)/python benchmarks/selfcheck.py $(SELFCHECK_ARGS)

selfcheck-short: $(TEST)
	@$(BIN)/python benchmarks/selfcheck.py --minutes 0.2 --seconds 0.3

slow: $(TEST) ## Run the slow tests
	$(BIN)/pytest -n 2 -m slow $(PYTEST_ARGS)

fuzz: $(TEST) ## Try damaged inputs by the thousand: make fuzz FUZZ_ARGS="--seed 1"
	$(BIN)/python -m tests.fuzz.run $(FUZZ_ARGS)

compat: $(TEST) ## Try other Pythons and the oldest dependencies: make compat PYTHONS="..."
	$(BIN)/python -m tests.compat $(PYTHONS)

docs: $(TEST) ## Build the documentation as a site, warnings are errors: build/docs/index.html
	$(BIN)/python -m sphinx -q -W --keep-going -E -d build/doctrees docs build/docs

bench: $(CORE) ## Hold traces, pricing and diffs to their bars, on an idle machine
	$(BIN)/python benchmarks/speed/trace.py
	$(BIN)/python benchmarks/speed/pricing.py
	$(BIN)/python benchmarks/speed/diff.py

bench-ratios: $(TEST) ## Compare perfc's own speed with what is committed
	$(BIN)/python benchmarks/ratios.py $(RATIOS_ARGS)

collect: ## Measure this machine: make collect DEVICE=cuda OUT=folder
	@python=$(BIN)/python; [ -e $(TEST) ] || python=$(PYTHON); \
	    PYTHONPATH=src $$python -u benchmarks/collect.py --device $(DEVICE) --out $(OUT) \
	    $(COLLECT_ARGS)

rehearse: $(TEST) ## Try a run on a GPU without one: make PYTHON=python3.12 rehearse
	@[ -x $(REHEARSAL)/bin/python ] || $(PYTHON) -m venv $(REHEARSAL)
	@echo "Installing a PyTorch that is built with CUDA in $(REHEARSAL) (gigabytes)"
	@$(REHEARSAL)/bin/python -m pip install -qq $(REHEARSED)
	PYTHONPATH=src:. $(REHEARSAL)/bin/python -m pytest -q tests/collection/test_rehearsal.py
	$(BIN)/python benchmarks/rehearse.py --python $(REHEARSAL)/bin/python

fit: $(TEST) ## Refit the shipped parameters from measured rows: make fit DATA=folder
	$(BIN)/python benchmarks/fit.py $(DATA) $(FIT_ARGS)

accuracy: $(TEST) ## Score all that perfc claims, unseen: make accuracy DATA=folder
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/accuracy.py $(DATA) $(ACCURACY_ARGS)

fixtures: $(TEST) ## Write the model files of tests and demo again
	$(BIN)/python examples/export_dlrm.py tests/fixtures/onnx
	$(BIN)/python examples/embedding_bag_op.py tests/fixtures/custom_op/dlrm_small_custom_op.onnx
	$(BIN)/python examples/export_transformers.py tests/fixtures/transformers
	$(BIN)/python -m tests.frontends.write_pt2_fixtures tests/fixtures/pt2
	$(BIN)/python -m tests.frontends.write_training_fixtures tests/fixtures/training
	$(BIN)/python examples/export_dlrm.py --model dlrm-mlperf examples/models

format: $(TEST) ## Format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything that make and the tools have made
	rm -rf .venv build dist .coverage htmlcov .hypothesis
	rm -rf *.egg-info src/*.egg-info tests/plugin/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "perfc needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 1; }
	@if [ -e $(UNFINISHED) ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    $(PYTHON) -m venv --clear .venv; fi
	@touch $(UNFINISHED)
	@echo "Installing perfc in .venv"
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --editable .
	@$(BIN)/python -m compileall -qq costmodels exporters fitting frontends ir measure measurements passes planning tools traces src
	@rm $(UNFINISHED)
	@touch $@

$(TEST): $(CORE) tests/plugin/pyproject.toml
	@if [ -e $(UNFINISHED) ]; then rm -f $(CORE); $(MAKE) --no-print-directory $(CORE); fi
	@touch $(UNFINISHED)
	@echo "Installing the tests' tools in .venv (with torch: this can take minutes)"
	@$(BIN)/python -m pip install -qq --group dev
	@# Their dependencies are for notebooks, and half a gigabyte for other formats; what
	@# they import is in the groups `test` and `ecosystem`.
	@$(BIN)/python -m pip install -qq --no-deps HolisticTraceAnalysis==0.5.0 \
	    ai-edge-model-explorer==0.1.34 model-explorer-onnx==0.4.2
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable tests/plugin
	@rm $(UNFINISHED)
	@touch $@
