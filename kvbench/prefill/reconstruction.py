"""How much attention a context's keys get while the model repeats the context (KVzip)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.ops.attention import grouped_logits
from kvbench.ops.softmax import Scaling, log_sum


class Requests(NamedTuple):
    first: str  # of the first chunk
    others: str


class Span(NamedTuple):
    """Where the context begins and ends in a prompt."""

    start: int
    end: int


class Factors(NamedTuple):
    """Factors of the attention that queries give to keys, as float32 logarithms."""

    queries: Tensor  # [q]
    keys: Tensor  # [num_attention_heads, len]


# From values [num_key_value_heads, len, head_dim] of the scored keys, to the factors of a pass.
Weighing = Callable[[Tensor], Factors]

# The request for the first chunk, and that for the others, which ends with the last tokens of the chunk before.
REQUESTS = Requests(
    "\n\nWrite out the text above once more, word for word.",
    "\n\nWrite out the text above once more, word for word, from the place where it says: ",
)
TILE = 2**24  # logits that exist at a time
TILES = {"cpu": 2**19}  # few enough for a core's cache


@dataclass(frozen=True)
class Reconstruction:
    """The parameters of a second pass over a context: KVzip (Kim et al. 2025, arXiv 2505.23416), and the authors' code.

    The context is cut into chunks. For each chunk the model reads, after the context, a request to repeat it, the end
    of the chat template and the chunk itself.

    chunk      tokens that are read again at a time.
    lead       tokens of the previous chunk that end the request of every chunk but the first.
    sinks      first tokens that count as the prefix if a prompt has none.
    requests   the texts of the first request and of the others; None: the chunk follows the context directly, without
               the chat template's end.
    group      how the largest attention of each query head is combined over a group.
    """

    chunk: int = 2000
    lead: int = 8
    sinks: int = 4
    requests: Requests | None = REQUESTS
    group: Literal["max", "mean"] = "max"

    def weighing(
        self, model: PreTrainedModel, places: Sequence[int]
    ) -> AbstractContextManager[Sequence[Weighing | None]]:
        """A context for a second pass, with the factors of its attention for each of the model's layers at `places`.

        None: no factors. A subclass with factors may hook the model, and removes its hooks at the end.
        """
        return nullcontext([None] * len(places))


@dataclass(frozen=True)
class ContextFrame:
    """The place of the context in the prompt, and how to encode a request about it; the defaults are for bare ids.

    prefix   tokens before the context: the head of the chat template, or a BOS token.
    end      tokens up to the context's end; None: the prompt ends with it.
    suffix   token ids of the chat template between a request and its answer.
    encode   token ids of a request, without special tokens; None: requests are left out.
    """

    prefix: int = 0
    end: int | None = None
    suffix: tuple[int, ...] = ()
    encode: Callable[[str], list[int]] | None = None

    def span(self, n: int) -> Span:
        """Where the context begins and ends in a prompt of n tokens."""
        return Span(self.prefix, n if self.end is None else self.end)

    def request(self, text: str) -> list[int]:
        return [] if self.encode is None else self.encode(text)


@dataclass(frozen=True)
class ContextScores:
    """The observations of a second pass in one layer.

    scores    float32 [num_key_value_heads, n]: for tokens of the context in [0, 1] unless attention has factors, for
              others infinite.
    outside   how many tokens of the prompt are before or after the context.
    """

    scores: Tensor
    outside: int


def largest_attention(
    queries: Tensor,
    keys: Tensor,
    scaling: Scaling,
    first: int,
    last: int,
    tile: int | None = None,
    group: Literal["max", "mean"] = "max",
    factors: Factors | None = None,
) -> Tensor:
    """The largest attention of keys first … last-1, over all queries of their group or as a mean over the group's heads
    of each head's largest: [num_key_value_heads, last-first].

    queries [num_attention_heads, q, head_dim] belong to the last q of the keys [num_key_value_heads, len, head_dim],
    both after RoPE; each attends to the keys up to its own, and no query comes before one of the scored keys. `factors`
    are of these queries and of the scored keys; without them results are in [0, 1]. float32; about `tile` logits
    exist at a time.
    """
    heads, q, _ = queries.shape
    length = keys.shape[1]
    keys = keys.float()
    grouped = queries.unflatten(0, (len(keys), -1))  # [num_key_value_heads, group, q, head_dim]
    most = torch.full((*grouped.shape[:2], last - first), float("-inf"), device=keys.device)
    step = max((tile or TILES.get(keys.device.type, TILE)) // (heads * length), 1)
    for at in range(0, q, step):
        rows = grouped[:, :, at : at + step]
        t = rows.shape[2]
        logits = grouped_logits(rows, keys[:, : length - q + at + t], scaling)  # without keys that no query sees
        future = torch.ones(t, t, dtype=torch.bool, device=keys.device).triu(1)
        logits[..., -t:].masked_fill_(future, float("-inf"))
        lse = log_sum(logits, scaling)
        if factors is not None:
            lse -= factors.queries[at : at + step]
        torch.maximum(most, (logits[..., first:last] - lse[..., None]).amax(dim=2), out=most)
    return _of_group(most, group, factors)


def strongest_attention(
    queries: Tensor,
    keys: Tensor,
    scaling: float,
    log_sums: Tensor,
    group: Literal["max", "mean"],
    factors: Factors | None,
) -> Tensor:
    """`largest_attention` of keys that every query sees, from known log-sum-exps of the logits.

    queries [num_attention_heads, q, head_dim], the scored keys [num_key_value_heads, len, head_dim], log_sums
    [num_attention_heads, q]; float32 [num_key_value_heads, len].
    """
    heads, q, _ = queries.shape
    grouped = queries.unflatten(0, (len(keys), -1))
    shifts = log_sums if factors is None else log_sums - factors.queries
    shifts = shifts.view(*grouped.shape[:3], 1)
    most = torch.full((*grouped.shape[:2], keys.shape[1]), float("-inf"), device=keys.device)
    keys = keys.float()
    step = max(TILES.get(keys.device.type, TILE) // (heads * keys.shape[1]), 1)
    for at in range(0, q, step):
        logits = grouped_logits(grouped[:, :, at : at + step], keys, scaling)
        torch.maximum(most, logits.sub_(shifts[:, :, at : at + step]).amax(dim=2), out=most)
    return _of_group(most, group, factors)


def _of_group(most: Tensor, group: Literal["max", "mean"], factors: Factors | None) -> Tensor:
    """Scores of KV heads from logarithms of each query head's largest attention, [num_key_value_heads, group, len]."""
    if factors is not None:
        most = most + factors.keys.view_as(most)
    return most.amax(dim=1).exp() if group == "max" else most.exp().mean(dim=1)
