"""Random weights of a given shape."""

import shutil
from dataclasses import replace

import torch

from kvbench.models import load as load_model
from kvbench.runner.manifest import folder_identity
from tests.support.runs import compose
from tests.support.speed_runs import TINY, spec


def test_random_weights_are_the_same_for_the_same_shape_and_need_no_hub():
    one, same, other = (load_model(each) for each in (spec(), spec(), spec(num_hidden_layers=3)))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), same.model.parameters(), strict=True))
    assert one.source == same.source != other.source
    assert len(other.model.model.layers) == 3
    assert one.model.dtype == torch.float32
    assert not one.model.training


def test_the_shipped_shape_is_llama_3_8b():
    config = compose("model=llama3-8b-random").model.random
    with torch.device("meta"):
        from transformers import AutoConfig, AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248  # as the model's card counts them


def test_the_tokenizer_of_random_weights_is_part_of_the_identity(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "tokenizer")
    with_folder = replace(spec(), path=str(folder))

    def identity(of):
        return folder_identity(compose(*TINY), load_model(of), [])

    embedded, before = identity(spec()), identity(with_folder)
    assert "tokenizer.json" in embedded["model"]["tokenizer"]["files"] and "files" not in embedded["model"]
    assert "tokenizer.json" in before["model"]["tokenizer"]["files"] and embedded != before
    (folder / "model.safetensors").unlink()  # the weights of the tokenizer's model are not read
    assert identity(with_folder) == before
    with (folder / "chat_template.jinja").open("a") as template:
        template.write("{# another #}")
    assert identity(with_folder) != before
