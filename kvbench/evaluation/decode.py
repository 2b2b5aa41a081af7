"""Decoding from compressed layer caches, of one sequence or of several as a batch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import StoredLayer
from kvbench.cache.batch import BatchCache
from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.evaluation.steps import ROOM, Capture, Steps, forward
from kvbench.models.layer_kinds import reads_one_by_one
from kvbench.models.positions import positions_after
from kvbench.ops.host_numbers import read as read_numbers

# How much decoding in a batch may change the gap between two logits of a row, in units of eps of their dtype times the
# row's largest absolute logit: twice the largest change that measure_batch_rounding.py found on a model of 30
# layers and on random ones, with three kinds of CPU kernels (results/benchmarks/batch_rounding.json). It found 25.9 in
# float32, where every sum is rounded; 2.9 in bfloat16 and 2.5 in float16, where only the results of sums are rounded;
# and 2.4e5 in float64, where transformers computes norms and rotations in float32.
GAP_NOISE = {torch.float64: 5e5, torch.float32: 52.0, torch.bfloat16: 6.0, torch.float16: 5.2}
# Tokens for which the host waits once on a GPU: it goes on launching in between. What a sequence got after its end is
# taken back; where a cache cannot do that, the host waits for every token that could end a sequence.
READ_EVERY = 8


class Choice(NamedTuple):
    """One token for each row of a batch, on the device of the logits: [rows] each."""

    tokens: Tensor
    close: Tensor  # whether rounding in a batch could choose another
    finite: Tensor  # whether the logits are finite


Chooser = Callable[[Tensor, Sequence[int]], Choice]  # (logits [rows, vocab_size], the sequence of each row)


class Ends(NamedTuple):
    """What ends a sequence."""

    stop_tokens: frozenset[int]
    max_new_tokens: int
    until: Callable[[list[int]], bool] | None


@dataclass
class Generation:
    """The output of one sequence of a batch."""

    decode_bytes: DecodeBytes  # of its caches, from the end of the prompt on
    repeats: Literal["graph", "fused"] = "graph"  # what steps that are repeated were recorded of
    tokens: list[int] = field(default_factory=list)  # without the stop token
    ended_by: int | None = None  # the stop token; None where something else ended the sequence
    steps: int = 0  # forward passes after prefill that included this sequence
    repeated: int = 0  # of these, those that were repeated and not launched by Python
    seconds: float = 0.0  # from the start of decoding to the end of this sequence
    not_finite: int | None = None  # index of the token whose logits were NaN or infinite, which ended the sequence
    close_call: int | None = None  # index of the first token that rounding in a batch could change; None: no token
    ended: bool = False

    @property
    def engine(self) -> str:
        """What decoded most of it: graph, fused or eager."""
        return self.repeats if self.repeated > self.steps / 2 else "eager"

    def withdraw(self, passes: int) -> None:
        """Count its last passes no more."""
        self.steps -= passes
        self.repeated = min(self.repeated, self.steps)

    def takes(self, token: int, close: bool, finite: bool, ends: Ends) -> bool:
        """Append one more token, or note what ended the sequence instead; whether the sequence goes on."""
        if close and self.close_call is None:
            self.close_call = len(self.tokens)
        if not finite:
            self.not_finite = len(self.tokens)
        elif token in ends.stop_tokens:
            self.ended_by = token
        else:
            self.tokens.append(token)
            self.ended = len(self.tokens) >= ends.max_new_tokens or bool(ends.until and ends.until(self.tokens))
            return not self.ended
        self.ended = True
        return False


def batched(sequences: Sequence[Sequence[StoredLayer]]) -> BatchCache:
    """A model's cache over the layer caches of several sequences, each a list of one cache per layer.

    The sequences are read and decoded through it alone: their layer caches may move into it (see `BatchLayer`).
    """
    return BatchCache(sequences)


def generate(
    model: PreTrainedModel,
    caches: Sequence[StoredLayer],
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    **options: Any,
) -> Generation:
    """`decode_greedily` of one sequence, whose last logits are [vocab_size]."""
    sequences: list[Generation] = decode_greedily(
        model, batched([caches]), logits[None], max_new_tokens, stop_tokens, **options
    )
    (sequence,) = sequences
    return sequence


@torch.inference_mode()
def decode_greedily(
    model: PreTrainedModel,
    cache: BatchCache,
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
    capture: Capture | None = None,
    fused: PreTrainedModel | None = None,
) -> list[Generation]:
    """`decode` with the likeliest token, always."""
    sequences: list[Generation] = decode(
        model, cache, logits, max_new_tokens, stop_tokens, None, at_least_one, until, capture, fused
    )
    return sequences


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    cache: BatchCache,
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    chooser: Chooser | None,
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
    capture: Capture | None = None,
    fused: PreTrainedModel | None = None,
) -> list[Generation]:
    """The tokens that `chooser` makes of the logits, of all sequences of a cache; None: the likeliest ones, whose
    choice is part of a recorded step. logits [sequences, vocab_size] follow the last token read and choose the first.

    Positions continue at the number of tokens *seen*, whatever each layer stored. With `at_least_one` the first token
    is no stop token. A sequence also ends when `until` is true of its tokens. A sequence that has ended leaves the
    batch: at once, or where `capture` records steps to repeat them, once half of the batch has ended, since a batch
    with fewer rows is recorded anew. `fused` is the model whose steps are recorded, if it is given (see
    `kvbench.evaluation.steps`). Of caches on a GPU that cannot take tokens back, a sequence whose logits are not finite
    may get up to `READ_EVERY` - 1 passes more, which its `steps` and `decode_bytes` count.
    """
    if logits.is_cuda or capture:
        cache.make_room(min(max_new_tokens, ROOM))
    if not cache.fuses:
        fused = None
    done = [Generation(counts, "fused" if fused else "graph") for counts in cache.sequences]
    active = list(range(len(done)))
    ends = Ends(stop_tokens, max_new_tokens, until)
    takes_back = cache.takes_back
    afterwards = takes_back or not (stop_tokens or until)  # whether an end may be found out some passes later
    waits = READ_EVERY if (logits.is_cuda or capture) and afterwards else 1
    steps = Steps(model, cache, capture, fused, None if chooser else choose)
    unread: list[Choice] = []
    late = [0] * len(active)  # passes of each row after its end
    length = 0
    started = time.perf_counter()
    if at_least_one:
        logits = logits.clone()
        logits[:, list(stop_tokens)] = float("-inf")
    while True:
        if steps.chosen is not None:
            unread.append(Choice(*steps.chosen))
        else:
            unread.append(chooser(logits, active) if chooser else choose(logits))
        ids = unread[-1].tokens
        length += 1
        if len(unread) == waits or length >= max_new_tokens:
            went_on = [row for row, sequence in enumerate(active) if not done[sequence].ended]
            surplus = _take([done[sequence] for sequence in active], unread, ends, started)
            rows = [row for row, passes in enumerate(surplus) if passes is None]
            late = [past + (passes or 0) for past, passes in zip(late, surplus, strict=True)]
            for row in went_on:
                passes = surplus[row]
                if takes_back and passes is not None:
                    done[active[row]].withdraw(passes)
                    cache.end(row, passes)
            unread = []
            held = steps.capture and takes_back and 2 * len(rows) > len(active) and cache.room > waits
            if len(rows) < len(active) and not held:
                if takes_back:
                    cache.take_back(late)
                if not rows:
                    return done
                cache.keep(rows)
                steps.changed()
                active, late = [active[row] for row in rows], [0] * len(rows)
                ids = ids[torch.tensor(rows, device=ids.device)]
        logits = steps(ids, max_new_tokens - length)
        for sequence in active:
            if not done[sequence].ended:
                done[sequence].steps += 1
                done[sequence].repeated += steps.repeats


def _take(sequences: Sequence[Generation], choices: Sequence[Choice], ends: Ends, started: float) -> list[int | None]:
    """Give each sequence its tokens of the choices, up to its end. Returns for each sequence how many of the passes up
    to the last choice came after its end; None: it goes on.

    The one place where decoding waits for the device, once for all choices.
    """
    numbers = iter(read_numbers(*(part for choice in choices for part in choice)))
    surplus: list[int | None] = [len(choices) if sequence.ended else None for sequence in sequences]
    for later, tokens, close, finite in zip(reversed(range(len(choices))), numbers, numbers, numbers, strict=True):
        for row, sequence in enumerate(sequences):
            if surplus[row] is None and not sequence.takes(tokens[row], bool(close[row]), bool(finite[row]), ends):
                surplus[row] = later
                sequence.seconds = time.perf_counter() - started
    return surplus


def choose(logits: Tensor) -> Choice:
    """For each row of logits [rows, vocab_size] the likeliest token, whether rounding in a batch could choose another
    (the second likeliest is nearer than `GAP_NOISE`), and whether the largest logit is finite: NaN counts as largest.
    """
    best = logits.argmax(dim=-1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    first, second = logits.to(wide).topk(2, dim=-1).values.T
    finite = logits.nan_to_num(float("nan"), 0, 0)  # excluded tokens are at -inf
    largest = torch.linalg.vector_norm(finite, float("inf"), dim=-1).to(wide)
    noise = GAP_NOISE[logits.dtype] * torch.finfo(logits.dtype).eps * largest
    return Choice(best, first - second < noise, first.isfinite())


@torch.inference_mode()
def read(model: PreTrainedModel, cache: BatchCache, ids: Tensor) -> Tensor:
    """Append the same ids [q] to every sequence of a cache and return the last logits [sequences, vocab_size].

    One forward pass; within it, caches that do not take blocks append the tokens one by one, as in decoding. Where
    later layers attend to the same cache, such a one gets a pass for each token; so do the models that need it.
    """
    return _read(model, cache, ids, logits_to_keep=1)[:, -1]


@torch.inference_mode()
def read_all(model: PreTrainedModel, cache: BatchCache, ids: Tensor) -> Tensor:
    """As `read`, but returns the logits after each of ids [q]: [sequences, q, vocab_size]."""
    return _read(model, cache, ids)


def _read(model: PreTrainedModel, cache: BatchCache, ids: Tensor, **options: object) -> Tensor:
    """The logits after the ids [q] that a pass, or a pass for each token, computes: [sequences, q or fewer, vocab]."""
    every = ids.expand(len(cache.sequences), -1)
    single = cache.token_by_token or reads_one_by_one(model.config)
    return torch.cat(
        [_pass(model, cache, part, **options) for part in every.split(1 if single else len(ids), 1)], dim=1
    )


def _pass(model: PreTrainedModel, cache: BatchCache, ids: Tensor, **options: object) -> Tensor:
    ids = ids.to(model.device)
    return forward(model, cache, ids, position_ids=positions_after(cache.get_seq_length(), ids), **options)
