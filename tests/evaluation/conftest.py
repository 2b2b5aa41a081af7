"""Models that the tests of evaluation share."""

import pytest

from kvbench.models import LoadedModel, ModelSpec
from kvbench.models import load as load_model
from kvbench.runner import run as main
from tests.support.tiny import tiny_model


@pytest.fixture(scope="session")
def model():
    return tiny_model(head_dim=32, num_layers=4)


@pytest.fixture(scope="session")
def tiny(tiny_folder) -> LoadedModel:
    """A tiny random model with the embedded model's tokenizer."""
    return load_model(ModelSpec(name="tiny", max_length=4096, path=str(tiny_folder)))


@pytest.fixture(scope="module")
def loaded_once():
    """Each model is made once for all runs of a file."""
    made = {}

    def load_once(spec: ModelSpec):
        key = repr(spec)
        if key not in made:
            made[key] = load_model(spec)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "load", load_once)
        yield
