"""The models and prompts of the check: random weights, no tokenizer, nothing from the network."""

from dataclasses import replace
from pathlib import Path

import torch
import yaml
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.models.random_weights import random_model
from kvbench.prefill import PrefillState

SHAPE = Path(__file__).parents[3] / "conf" / "model" / "llama3-8b-random.yaml"
# For comparisons with the CPU: the attention of Llama-3-8B in 4 layers, and little else.
SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 512, "vocab_size": 2048}
# For a trial of the script on any machine.
TRIAL = SMALL | {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "hidden_size": 128}


def llama3_8b(device: str, dtype: torch.dtype, **changes) -> PreTrainedModel:
    """conf/model/llama3-8b-random with `changes` to its shape."""
    shape = yaml.safe_load(SHAPE.read_text(encoding="utf-8"))["random"]
    return random_model(shape | changes, dtype, device).eval()


def token_ids(n: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Random token ids [n]."""
    return torch.randint(3, vocabulary, (n,), generator=torch.Generator().manual_seed(seed))


def on_cpu(state: PrefillState) -> PrefillState:
    """A copy of a prefill state on the CPU. Its RoPE stays that of the model, which moves what it returns."""
    layers = []
    for layer in state.layers:
        moved = {name: value.cpu() for name, value in vars(layer).items() if isinstance(value, Tensor)}
        moved["lookahead_sums"] = {w: sums.cpu() for w, sums in layer.lookahead_sums.items()}
        layers.append(replace(layer, **moved))  # without what it remembers of its device
    return PrefillState(layers, state.logits.cpu())
