"""Decoding steps: one pass of the model for one token of each sequence."""

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.models.cache_argument import as_argument


class Counting(Protocol):
    """A model's cache that counts the tokens of a pass."""

    def count(self, tokens: int) -> None: ...


def forward(model: PreTrainedModel, cache: Counting, ids: Tensor, **options: object) -> Tensor:
    """One pass over ids [sequences, q]: logits [sequences, q, vocab_size]."""
    logits = model(input_ids=ids.to(model.device), **as_argument(model, cache), use_cache=True, **options).logits
    cache.count(ids.shape[1])
    return logits


def step(model: PreTrainedModel, cache: Counting, ids: Tensor, positions: Tensor) -> Tensor:
    """Append one token to each sequence, ids [sequences], and return the logits after it, [sequences, vocab_size].

    positions [1, 1] is the token's, and afterwards the next token's: a repeated step advances by itself.
    """
    logits = forward(model, cache, ids[:, None], position_ids=positions)[:, -1]
    positions += 1
    return logits


class Steps:
    """The steps of a batch, which Python launches one by one; `RecordedSteps` repeats them.

    chosen    the last step's choice from its own logits: numbers of each row, the tokens first; None: it chose nothing.
    repeats   whether the last step repeated a recording.
    records   whether steps are recorded, anew after each change of the rows.
    """

    chosen: Sequence[Tensor] | None = None
    repeats = False
    records = False
    repeats_of: Literal["graph", "fused"] = "graph"  # which kind of recording steps repeat

    def __init__(self, model: PreTrainedModel, cache: BatchCache):
        self.model, self.cache = model, cache
        self.positions = torch.full((1, 1), cache.get_seq_length(), device=model.device)  # of the next token, every row

    def __call__(self, ids: Tensor, left: int) -> Tensor:
        """The logits [sequences, vocab_size] after ids [sequences], one token of each; at most `left` steps follow."""
        return step(self.model, self.cache, ids, self.positions)

    def changed(self) -> None:
        """The batch has other rows now."""
        return None
