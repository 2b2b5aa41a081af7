"""Greedy generation from compressed layer caches, of one sequence or of several as a batch."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.cache.batch import BatchLayer

# Two logits nearer than this many rounding errors of the larger one may change places with the batch size.
ROUNDING_ERRORS = 512


@dataclass
class Generation:
    """What one sequence of a batch became."""

    tokens: list[int] = field(default_factory=list)  # without the token that ended it
    steps: int = 0  # forward passes after prefill that it took part in
    seconds: float = 0.0  # until it ended
    not_finite: int | None = None  # token at which the logits were NaN or infinite, which ended the sequence
    close_call: int | None = None  # first token chosen by less than floating point can tell


def batched(sequences: Sequence[Sequence[LayerCache]]) -> Cache:
    """A model's cache over the layer caches of several sequences."""
    return Cache(layers=[BatchLayer(rows) for rows in zip(*sequences, strict=True)])


def generate(
    model: PreTrainedModel,
    caches: Sequence[LayerCache],
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
) -> Generation:
    """`generate_batch` of one sequence, whose last logits are [vocab_size]."""
    (sequence,) = generate_batch(model, [caches], logits[None], max_new_tokens, stop_tokens, at_least_one, until)
    return sequence


def generate_batch(
    model: PreTrainedModel,
    sequences: Sequence[Sequence[LayerCache]],
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
) -> list[Generation]:
    """Greedy tokens after prompts that `sequences` hold as layer caches, see `decode_greedily`."""
    return decode_greedily(model, batched(sequences), logits, max_new_tokens, stop_tokens, at_least_one, until)


@torch.inference_mode()
def decode_greedily(
    model: PreTrainedModel,
    cache: Cache,
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
) -> list[Generation]:
    """Greedy tokens of all sequences of a cache; logits [sequences, vocab_size] are those of the last token
    read, and choose the first token.

    Positions continue at the number of tokens *seen*, whatever each layer stored. With `at_least_one` the
    first token is the likeliest that does not stop. A sequence of whose tokens `until` holds is at its end, too.
    A sequence that ends leaves the batch.
    """
    done = [Generation() for _ in logits]
    going = list(done)
    started = time.perf_counter()
    if at_least_one:
        logits = logits.clone()
        logits[:, list(stop_tokens)] = float("-inf")
    while True:
        chosen, close, finite = choose(logits)
        rows = []
        for row, (sequence, token) in enumerate(zip(going, chosen, strict=True)):
            if close[row] and sequence.close_call is None:
                sequence.close_call = len(sequence.tokens)
            if not finite[row]:
                sequence.not_finite = len(sequence.tokens)
            elif token not in stop_tokens:
                sequence.tokens.append(token)
                if len(sequence.tokens) < max_new_tokens and not (until and until(sequence.tokens)):
                    rows.append(row)
                    continue
            sequence.seconds = time.perf_counter() - started
        if not rows:
            return done
        if len(rows) < len(going):
            for layer in cache.layers:
                layer.keep(rows)
            going = [going[row] for row in rows]
        ids = torch.tensor([[chosen[row]] for row in rows], device=model.device)
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1]
        for sequence in going:
            sequence.steps += 1


def choose(logits: Tensor) -> tuple[list[int], list[bool], list[bool]]:
    """The likeliest token of each row [rows, vocab_size], whether rounding could have chosen another, and whether the
    largest logit is finite: NaN counts as the largest of all."""
    best = logits.argmax(dim=-1)
    first, second = logits.float().topk(2, dim=-1).values.T
    noise = ROUNDING_ERRORS * torch.finfo(logits.dtype).eps * first.abs()
    return best.tolist(), (first - second < noise).tolist(), first.isfinite().tolist()


@torch.inference_mode()
def read(model: PreTrainedModel, sequences: Sequence[Sequence[LayerCache]], ids: Tensor) -> Tensor:
    """Let the model read the same ids [q] in every sequence; the last logits [sequences, vocab_size].

    In one pass where every cache takes a block of tokens; else one by one, as decoded tokens come.
    """
    for logits in _blocks(model, sequences, ids, logits_to_keep=1):
        last = logits
    return last[:, -1]


@torch.inference_mode()
def read_all(model: PreTrainedModel, sequences: Sequence[Sequence[LayerCache]], ids: Tensor) -> Tensor:
    """As `read`, but the logits after every one of ids [q]: [sequences, q, vocab_size]."""
    return torch.cat(list(_blocks(model, sequences, ids)), dim=1)


def _blocks(
    model: PreTrainedModel, sequences: Sequence[Sequence[LayerCache]], ids: Tensor, **options
) -> Iterator[Tensor]:
    cache = batched(sequences)
    step = len(ids) if all(layer.takes_blocks for layer in cache.layers) else 1
    for block in ids.to(model.device).expand(len(sequences), -1).split(step, dim=1):
        yield model(input_ids=block, past_key_values=cache, use_cache=True, **options).logits
