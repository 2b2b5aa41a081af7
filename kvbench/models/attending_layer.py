"""Cache layers that compute attention over their own storage."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from transformers.cache_utils import CacheLayerMixin

from kvbench.errors import UserError
from kvbench.models.latents import LATENTS, Latents, hand_over
from kvbench.ops.softmax import Scaling


class AttendingLayer(CacheLayerMixin):
    """A cache layer that returns itself from `update`, so that the registered attention function calls its `attend`.

    windowed   whether it attends only to the model's sliding window.
    readers    how many later layers attend to its keys and values, by `reread`.
    unread     how many of them have not yet attended in this pass.
    latent     whether the model passes it latents instead of keys and values (`kvbench.models.latents`).
    absorbs    whether it takes only latents: rotated keys as keys of one head, latents as values, and queries that have
               absorbed the key projection. If not, it takes the expanded keys and values.
    """

    readers = 0
    unread = 0
    latent = False

    @property
    def windowed(self) -> bool:
        return False

    @property
    def absorbs(self) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.is_initialized = True

    @abstractmethod
    def append(self, keys: Tensor, values: Tensor) -> None:
        """Store new tokens: keys (after RoPE) and values, [1, num_key_value_heads, t, head_dim], or as many rows as the
        layer has sequences."""

    def read_by(self, module: nn.Module) -> None:
        """Called with the module whose query is about to attend, which a layer may refuse."""

    @abstractmethod
    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The attention output of query [1, num_attention_heads, q, head_dim], or of as many rows, of the same shape.

        scaling is a number, or a `Softmax` in models with soft caps or sinks.
        """

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The attention output of a later layer's query, after `attend` in the same pass.

        The query may have only the last tokens. A layer that observes queries, or changes with every query, does so
        only in `attend`, and overrides this.
        """
        return self.attend(query, scaling)

    def was_read(self) -> bool:
        """Count a reader. Returns whether it was the last."""
        self.unread -= 1
        return self.unread == 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Self, Self] | Latents:
        """The model's input to attention: the layer itself instead of keys and values, or unchanged latents, which the
        layer takes after the model has expanded them."""
        if self.latent:
            return hand_over(self, Latents(key_states, value_states))
        self.take(key_states, value_states)
        return self, self

    def take(self, keys: Tensor, values: Tensor) -> None:
        """`append`, and count the tokens."""
        self.append(keys, values)
        self.seen += keys.shape[2]
        self.unread = self.readers

    def keep_latents(self, latents: Latents) -> None:
        """Keep the latents of the tokens whose expanded keys and values come next."""
        raise UserError(
            f"{LATENTS}; a method that drops tokens while the prompt is read stores keys and values: use one that "
            "drops them afterwards"
        )

    def get_seq_length(self) -> int:
        """Number of tokens seen, not stored: the next token's position stays correct after eviction."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name in transformers 5.2

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to initialise: a layer is constructed from its tensors."""


def attend_one_by_one(
    cache: AttendingLayer,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    scaling: Scaling,
    appended: Callable[[], object] = lambda: None,
) -> Tensor:
    """Append keys, values [rows, num_key_value_heads, t, head_dim] one token after the other, each attended to at once.

    For a cache that does not take blocks. The tokens need not go through the model one by one, since a layer's output
    for a token depends on no later token. Calls `appended` after every token, before its attention is computed.
    """
    outputs = []
    for new in zip(keys.split(1, dim=2), values.split(1, dim=2), query.split(1, dim=2), strict=True):
        cache.take(*new[:2])
        appended()
        outputs.append(cache.attend(new[2], scaling))
    return torch.cat(outputs, dim=2)
