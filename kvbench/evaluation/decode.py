"""Decoding from compressed layer caches, of one sequence or of several as a batch.

The prefill's last logits choose the first token. Each token is appended to the caches by one pass of the model, whose
logits choose the next one. The host reads chosen tokens late, several at once, and withdraws the passes that came after
a sequence's end; a sequence that has ended leaves the batch.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import StoredLayer
from kvbench.cache.batch import BatchCache
from kvbench.evaluation.generation import Ends, Generation
from kvbench.evaluation.recorded_steps import ROOM, RecordedSteps, Recording
from kvbench.evaluation.steps import Steps, forward
from kvbench.models.layer_kinds import reads_one_by_one
from kvbench.models.positions import positions_after
from kvbench.ops.host_numbers import read as read_numbers

# How much decoding in a batch may change the gap between two logits of a row, in units of eps of their dtype times the
# row's largest absolute logit: twice the largest change that measure_batch_rounding.py found on a model of 30
# layers and on random ones, with three kinds of CPU kernels (results/benchmarks/batch_rounding.json). It found 25.9 in
# float32, where every sum is rounded; 2.9 in bfloat16 and 2.5 in float16, where only the results of sums are rounded;
# and 2.4e5 in float64, where transformers computes norms and rotations in float32.
GAP_NOISE = {torch.float64: 5e5, torch.float32: 52.0, torch.bfloat16: 6.0, torch.float16: 5.2}
# On a GPU the host waits once for this many tokens and goes on launching in between. Passes after a sequence's end are
# withdrawn; if a cache cannot do that, the host waits for every token that could end a sequence.
READ_EVERY = 8


class Choice(NamedTuple):
    """One token for each row of a batch, on the device of the logits: [rows] each."""

    tokens: Tensor
    close: Tensor  # whether rounding in a batch could choose another
    finite: Tensor  # whether the logits are finite


Chooser = Callable[[Tensor, Sequence[int]], Choice]  # (logits [rows, vocab_size], the sequence of each row)


def batched(sequences: Sequence[list[StoredLayer]]) -> BatchCache:
    """A model's cache over the layer caches of several sequences, each a list of one cache per layer.

    From then on the sequences are read and decoded only through it: caches of one kind are joined, and a `Row` that
    counts the sequence's bytes replaces each joined cache in its list (see `BatchLayer`).
    """
    return BatchCache(sequences)


def generate(
    model: PreTrainedModel,
    caches: list[StoredLayer],
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    **options: Any,
) -> Generation:
    """`decode` of one sequence, whose last logits are [vocab_size]."""
    return decode(model, batched([caches]), logits[None], max_new_tokens, stop_tokens, **options)[0]


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    cache: BatchCache,
    logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
    chooser: Chooser | None = None,
    at_least_one: bool = False,
    until: Callable[[list[int]], bool] | None = None,
    recording: Recording | None = None,
) -> list[Generation]:
    """Decode all sequences of a cache with the tokens that `chooser` chooses; None: the likeliest tokens.

    logits [sequences, vocab_size] follow the last token read and choose the first token. Positions continue at the
    number of tokens *seen*, whatever each layer stored. With `at_least_one` the first token is no stop token. A
    sequence also ends when `until` is true of its tokens. It then leaves the batch: at once or, with a `recording` of
    steps, once half of the batch has ended, since a batch with fewer rows is recorded anew. If the caches are on a GPU
    and cannot take tokens back, a sequence whose logits are not finite may get up to `READ_EVERY` - 1 more passes,
    which its `steps` and `decode_bytes` count.
    """
    if logits.is_cuda or recording:
        cache.make_room(min(max_new_tokens, ROOM))
    if at_least_one:
        logits = logits.clone()
        logits[:, list(stop_tokens)] = float("-inf")
    ends = Ends(stop_tokens, max_new_tokens, until)
    withdraws = cache.takes_back or not (stop_tokens or until)  # whether an end may be noticed some passes later
    late = (logits.is_cuda or recording is not None) and withdraws
    if recording is None:
        steps = Steps(model, cache)
    else:
        steps = RecordedSteps(model, cache, recording, None if chooser else choose)
    return Decoding(cache, steps, chooser, ends, READ_EVERY if late else 1).run(logits)


class Decoding:
    """Sequences that decode as a batch. The host reads `waits` tokens of each row at a time."""

    def __init__(self, cache: BatchCache, steps: Steps, chooser: Chooser | None, ends: Ends, waits: int):
        self.cache, self.steps, self.chooser, self.ends, self.waits = cache, steps, chooser, ends, waits
        self.sequences = [Generation(counts, steps.repeats_of) for counts in cache.sequences]
        self.takes_back = cache.takes_back
        self.active = list(range(len(self.sequences)))  # the sequence of each row
        self.late = [0] * len(self.active)  # passes of each row after its end
        self.unread: list[Choice] = []
        self.length = 0  # tokens chosen in each row
        self.started = time.perf_counter()

    def run(self, logits: Tensor) -> list[Generation]:
        while True:
            ids = self.choose(logits)
            if len(self.unread) == self.waits or self.length >= self.ends.max_new_tokens:
                going = self.read()
                if len(going) < len(self.active) and not self.stay(going):
                    self.leave(going)
                    if not going:
                        return self.sequences
                    ids = ids[torch.tensor(going, device=ids.device)]
            logits = self.append(ids)

    def choose(self, logits: Tensor) -> Tensor:
        """The next token of each row, which the host has not read yet."""
        if self.steps.chosen is not None:
            choice = Choice(*self.steps.chosen)
        else:
            choice = self.chooser(logits, self.active) if self.chooser else choose(logits)
        self.unread.append(choice)
        self.length += 1
        return choice.tokens

    def append(self, ids: Tensor) -> Tensor:
        """The logits after one more token of each row."""
        logits = self.steps(ids, self.ends.max_new_tokens - self.length)
        for sequence in self.active:
            self.sequences[sequence].passed(self.steps.repeats)
        return logits

    def read(self) -> list[int]:
        """Give each sequence its unread tokens up to its end, and withdraw later passes. Returns the rows that go on.

        Only here does decoding wait for the device, once for all tokens.
        """
        numbers = iter(read_numbers(*(part for choice in self.unread for part in choice)))
        choices = list(zip(numbers, numbers, numbers, strict=True))
        self.unread, going = [], []
        for row, sequence in enumerate(self.sequences[number] for number in self.active):
            if sequence.ended:
                self.late[row] += len(choices)
                continue
            for later, (tokens, close, finite) in zip(reversed(range(len(choices))), choices, strict=True):
                if not sequence.takes(tokens[row], bool(close[row]), bool(finite[row]), self.ends):
                    sequence.seconds = time.perf_counter() - self.started
                    self.late[row] += later
                    if self.takes_back:
                        sequence.withdraw(later)
                        self.cache.end(row, later)
                    break
            else:
                going.append(row)
        return going

    def stay(self, going: Sequence[int]) -> bool:
        """Whether ended rows stay for a while, since the steps of a batch without them must be recorded anew."""
        worth = self.steps.records and self.takes_back and 2 * len(going) > len(self.active)
        return worth and self.cache.room > self.waits

    def leave(self, going: Sequence[int]) -> None:
        """Keep the rows that go on."""
        if self.takes_back:
            self.cache.take_back(self.late)
        if going:
            self.cache.keep(going)
            self.steps.changed()
        self.active, self.late = [self.active[row] for row in going], [0] * len(going)


def choose(logits: Tensor) -> Choice:
    """For each row of logits [rows, vocab_size]: the likeliest token, whether rounding in a batch could choose another
    (the second likeliest is nearer than `GAP_NOISE`), and whether the largest logit is finite; NaN counts as largest.
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

    One forward pass, in which caches that do not take blocks append the tokens one by one, as in decoding. If later
    layers attend to such a cache, or if the model needs it, each token gets its own pass.
    """
    return read_all(model, cache, ids, logits_to_keep=1)[:, -1]


@torch.inference_mode()
def read_all(model: PreTrainedModel, cache: BatchCache, ids: Tensor, **options: object) -> Tensor:
    """As `read`, but returns the logits after each of ids [q]: [sequences, q, vocab_size]."""
    single = cache.token_by_token or reads_one_by_one(model.config)
    logits = []
    for part in ids.to(model.device).expand(len(cache.sequences), -1).split(1 if single else len(ids), dim=1):
        positions = positions_after(cache.get_seq_length(), part)
        logits.append(forward(model, cache, part, position_ids=positions, **options))
    return torch.cat(logits, dim=1)
