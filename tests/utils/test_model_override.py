"""`model=org/name` and `model=/folder` on the command line."""

from pathlib import Path

import pytest

from kvbench.errors import UserError
from kvbench.utils.model_override import expanded, model_name


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("model=org/name", ["model=hf", "model.hub_id=org/name"]),
        ("model=org/a,org/b", ["model=hf", "model.hub_id=org/a,org/b"]),
        ("model=/models/x", ["model=hf", "model.path='/models/x'"]),
        ("model='/models/my model'", ["model=hf", "model.path='/models/my model'"]),
        ("model=./x", ["model=hf", "model.path='x'"]),
        ("model=~/x", ["model=hf", f"model.path='{Path.home() / 'x'}'"]),
        ("model=llama3-8b", ["model=llama3-8b"]),
        ("model=llama3-8b,qwen3-8b", ["model=llama3-8b,qwen3-8b"]),
        ("model.path=/models/x", ["model.path=/models/x"]),
        ("benchmark.path=a/b", ["benchmark.path=a/b"]),
    ],
)
def test_a_hub_id_or_a_folder_is_short_for_the_keys_of_model_hf(given, becomes):
    assert expanded(["method=full", given]) == ["method=full", *becomes]


def test_a_sweep_does_not_mix_presets_and_hub_ids():
    with pytest.raises(UserError, match="a sweep takes either presets or org/name, not both"):
        expanded(["model=llama3-8b,org/name"])


def test_a_folder_gives_its_name_and_a_hub_id_is_its_own(tmp_path):
    assert model_name(str(tmp_path / "x" / ".." / "tiny"), None) == "tiny"
    assert model_name(None, "org/name") == "org/name"
    assert model_name(None, None) is None
