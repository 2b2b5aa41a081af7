"""The models and prompts of the check: random weights, no tokenizer, nothing from the network."""

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods.heads.head_scores import KIND
from kvbench.models.random_weights import random_model
from kvbench.ops.rope import Rope
from kvbench.prefill import FullPrefill, Needs, PrefillState

SHAPE = Path(__file__).parents[3] / "conf" / "model" / "llama3-8b-random.yaml"
# For comparisons with the CPU: the attention of Llama-3-8B in 4 layers, and little else.
SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 512, "vocab_size": 2048}
# For a trial of the script on any machine.
TRIAL = SMALL | {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "hidden_size": 128}
LOGITS = 3.0  # by how much logits of attention deviate


def llama3_8b(device: str, dtype: torch.dtype, **changes) -> PreTrainedModel:
    """conf/model/llama3-8b-random with `changes` to its shape."""
    shape = yaml.safe_load(SHAPE.read_text(encoding="utf-8"))["random"]
    return random_model(shape | changes, dtype, device).eval()


@torch.no_grad()
def sharpened(model: PreTrainedModel) -> PreTrainedModel:
    """`model` with queries so long that logits of attention deviate by `LOGITS`, as a trained model's do.

    As drawn, attention is almost uniform: a wrong key hardly shows, and rounding decides between scores.
    """
    config = model.config
    length = config.initializer_range * config.hidden_size**0.5  # of a channel of queries and keys, behind the norm
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight *= LOGITS / length**2
    return model


def token_ids(n: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Random token ids [n]."""
    return torch.randint(3, vocabulary, (n,), generator=torch.Generator().manual_seed(seed))


def prefilled(setting: Setting, model: PreTrainedModel, n: int, seed: int = 0) -> PrefillState:
    """A prompt of n random tokens as a setting's method needs it, with its second passes over the context."""
    plan = setting.method.plan(n, len(model.model.layers), budget_of(setting, model, n))
    return SharedPass(model, token_ids(n, model.config.vocab_size, seed), plan, setting.method.needs).state


def prefilled_ids(model: PreTrainedModel, ids: Tensor) -> PrefillState:
    """A prompt of these ids [n], without observations."""
    return SharedPass(model, ids, FullPrefill(), Needs()).state


def budget_of(setting: Setting, model: PreTrainedModel, n: int) -> int:
    return setting.budget_at(n, len(model.model.layers))


def write_head_scores(file: Path, model: PreTrainedModel) -> None:
    """A calibration file for methods that read one: random numbers for a model's query heads."""
    shape = model.config.num_hidden_layers, model.config.num_attention_heads
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    made = {"kind": KIND, "about": "drawn at random", "model": "", "over": "query_heads", "scores": scores}
    file.write_text(json.dumps(made), encoding="utf-8")


def on_cpu(state: PrefillState) -> PrefillState:
    """A copy of a prefill state on the CPU. Its RoPE stays that of the model, which moves what it returns."""
    return PrefillState([moved(layer) for layer in state.layers], state.logits.cpu())


def moved(value: Any) -> Any:
    """A copy on the CPU of a tensor, or of an object that holds tensors, without what a layer caches for its device."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: moved(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, Rope):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: moved(part) for name, part in parts.items()})
    return value
