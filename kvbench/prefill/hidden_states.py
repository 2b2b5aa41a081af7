"""The change that each layer's attention makes to the residual stream, observed with hooks during a prefill."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvbench.errors import UserError
from kvbench.ops.rope import text_decoder

ROWS = 1024  # tokens per block, which bounds the float32 copies


def mean_cosine(before: Tensor, added: Tensor) -> float:
    """Mean over tokens of cos(before, before + added), both [n, hidden_size]; in float32."""
    total = torch.zeros((), device=before.device)
    for x, dx in zip(before.split(ROWS), added.split(ROWS), strict=True):
        # the sum is taken in the model's dtype, as in the residual stream
        total += F.cosine_similarity(x.float(), (x + dx).float(), dim=-1).sum()
    return float((total / len(before)).item())


@contextmanager
def hidden_similarities(model: nn.Module, places: Sequence[int]) -> Iterator[list[float]]:
    """A list that a forward pass fills with one number for each layer of `places`: the mean cosine similarity between
    the hidden state before it and the hidden state after its attention was added (SqueezeAttention, Wang et al. 2024).

    The decoder layers must add the output of `self_attn` to their input, as in Llama, Mistral and Qwen, or its norm, as
    in Gemma-2 and 3. Raises UserError for a model without such layers. The hooks are removed when the context ends.
    """
    modules = getattr(text_decoder(model), "layers", [])
    layers = [modules[place] for place in places if place < len(modules) and hasattr(modules[place], "self_attn")]
    if not layers or len(layers) < len(places):
        raise UserError(f"{type(model).__name__} has no decoder layers with self_attn to observe hidden states at")
    similarities: list[float] = []
    entering: list[Tensor] = []

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        if hidden.dim() != 3:  # several streams (Gemma-3n's AltUp)
            raise UserError(f"{type(model).__name__} has no single stream of hidden states to compare")
        entering.append(hidden[0])

    def attended(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        added = (output[0] if isinstance(output, tuple) else output)[0]
        # the input was recorded before accelerate's hook moved it to this layer's device
        similarities.append(mean_cosine(entering.pop().to(added.device), added))

    hooks = [layer.register_forward_pre_hook(enter, with_kwargs=True) for layer in layers]
    hooks += [_last_before_residual(layer).register_forward_hook(attended) for layer in layers]
    try:
        yield similarities
    finally:
        for hook in hooks:
            hook.remove()


def _last_before_residual(layer: nn.Module) -> nn.Module:
    """The module whose output attention adds to the residual stream: attention, or the norm of its output."""
    normed = hasattr(layer, "post_attention_layernorm") and hasattr(layer, "post_feedforward_layernorm")
    return layer.post_attention_layernorm if normed else layer.self_attn
