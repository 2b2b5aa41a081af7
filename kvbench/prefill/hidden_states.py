"""The change that each layer's attention makes to the residual stream, observed with hooks during a prefill."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kvbench.errors import UserError
from kvbench.ops.rope import decoder_layers

ROWS = 1024  # tokens per block, which bounds the float32 copies


def mean_cosine(before: Tensor, after: Tensor) -> float:
    """Mean over tokens of the cosine of hidden states [n, hidden_size]; in float32."""
    total = torch.zeros((), device=after.device)
    for x, y in zip(before.split(ROWS), after.split(ROWS), strict=True):
        total += F.cosine_similarity(x.to(y.device).float(), y.float(), dim=-1).sum()
    return float((total / len(before)).item())


@contextmanager
def hidden_similarities(model: nn.Module, places: Sequence[int]) -> Iterator[list[float]]:
    """A list that a forward pass fills with one number for each layer of `places`: the mean cosine similarity between
    the hidden state before it and the hidden state after its attention was added (SqueezeAttention, Wang et al. 2024).

    Raises UserError for a model whose decoder layers have no `self_attn`, or several streams of hidden states. The
    hooks are removed when the context ends.
    """
    modules = decoder_layers(model)
    layers = [modules[place] for place in places if place < len(modules) and hasattr(modules[place], "self_attn")]
    if not layers or len(layers) < len(places):
        raise UserError(f"{type(model).__name__} has no decoder layers with self_attn to observe hidden states at")
    observed = [AroundAttention(layer, type(model).__name__) for layer in layers]
    similarities: list[float] = []
    hooks = [hook for layer in observed for hook in layer.hooks(similarities)]
    try:
        yield similarities
    finally:
        for hook in hooks:
            hook.remove()


class AroundAttention:
    """The hidden states around the attention of one decoder layer, whatever it does to what it adds.

    A norm or a dropout may follow attention, and a factor may scale its output (Granite) before it is added. What the
    next module reads is then the sum, unless it was there before attention: such a layer reads the same state twice,
    for attention and the MLP, and adds both at its end.
    """

    def __init__(self, layer: nn.Module, model: str):
        self.layer, self.model = layer, model
        self.earlier: list[Tensor] = []  # what the layer's modules read and returned before attention
        self.added: Tensor | None = None  # attention's output, and what modules made of it since
        self.similarities: list[float] = []

    def hooks(self, similarities: list[float]) -> list[RemovableHandle]:
        """Hooks that append the similarity of each pass."""
        self.similarities = similarities
        made = [
            self.layer.register_forward_pre_hook(self.enter, with_kwargs=True),
            self.layer.register_forward_hook(self.leave),
        ]
        for child in self.layer.children():
            made += [
                child.register_forward_pre_hook(self.read, with_kwargs=True),
                child.register_forward_hook(self.returned, with_kwargs=True),
            ]
        return made

    def enter(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = first_tensor(args, kwargs)
        if hidden.dim() != 3:  # several streams (Gemma-3n's AltUp)
            raise UserError(f"{self.model} has no single stream of hidden states to compare")
        self.earlier, self.added = [hidden], None

    def read(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module of the layer is called. After attention, the first that reads another tensor reads the sum."""
        if not self.earlier:
            return
        hidden = first_tensor(args, kwargs)
        if self.added is None:
            self.earlier.append(hidden)
        elif any(hidden is earlier for earlier in self.earlier):
            self.finish(self.sum())
        elif hidden is not self.added:
            self.finish(hidden)

    def returned(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not self.earlier:
            return
        hidden = output[0] if isinstance(output, tuple) else output
        if module is self.layer.self_attn or self.added is not None:
            self.added = hidden
        else:
            self.earlier.append(hidden)

    def leave(self, layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.earlier:
            self.finish(self.sum())

    def sum(self) -> Tensor:
        assert self.added is not None, "a layer calls its attention"
        # the input was recorded before accelerate's hook moved it to this layer's device
        return self.earlier[0].to(self.added.device) + self.added

    def finish(self, after: Tensor) -> None:
        self.similarities.append(mean_cosine(self.earlier[0][0], after[0]))
        self.earlier, self.added = [], None


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states that a module is given, by position or by name."""
    return next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
