"""How much each layer's attention changes the residual stream, observed with hooks during a prefill."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvbench.errors import UserError

ROWS = 1024  # tokens whose float32 copies exist at a time


def mean_cosine(before: Tensor, added: Tensor) -> float:
    """Mean over tokens of cos(before, before + added), both [n, hidden_size]; in float32."""
    total = torch.zeros((), device=before.device)
    for x, dx in zip(before.split(ROWS), added.split(ROWS), strict=True):
        # the sum in the model's dtype, as the residual stream has it
        total += F.cosine_similarity(x.float(), (x + dx).float(), dim=-1).sum()
    return (total / len(before)).item()


@contextmanager
def hidden_similarities(model: nn.Module) -> Iterator[list[float]]:
    """A list that a forward pass fills, one number per layer: the similarity of the hidden state that enters
    the layer with the one after its attention was added (SqueezeAttention, Wang et al. 2024).

    For decoder layers that add the output of `self_attn` to their input, as those of Llama, Mistral and Qwen.
    The hooks are gone when the context ends.
    """
    layers = getattr(model.base_model, "layers", [])
    if not layers or not all(hasattr(layer, "self_attn") for layer in layers):
        raise UserError(f"{type(model).__name__} has no decoder layers with self_attn to observe hidden states at")
    similarities: list[float] = []
    entering: list[Tensor] = []

    def enter(layer, args, kwargs):
        entering.append((args[0] if args else kwargs["hidden_states"])[0])

    def attended(attention, args, output):
        similarities.append(mean_cosine(entering.pop(), output[0][0]))

    hooks = [layer.register_forward_pre_hook(enter, with_kwargs=True) for layer in layers]
    hooks += [layer.self_attn.register_forward_hook(attended) for layer in layers]
    try:
        yield similarities
    finally:
        for hook in hooks:
            hook.remove()
