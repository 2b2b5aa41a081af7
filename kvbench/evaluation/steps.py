"""Decoding steps: one pass of the model for one token of each sequence, launched by Python or repeated as a graph."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.errors import UserError
from kvbench.evaluation.cuda_graph import cuda_graph
from kvbench.evaluation.fused_layers import DeviceCache, compiling, fused
from kvbench.models.cache_argument import as_argument
from kvbench.models.one_token import OneToken
from kvbench.utils.console import warn_once
from kvbench.utils.device import gpus, offloaded

# Runs work() once on the device, and returns what repeats its device operations without Python.
Capture = Callable[[Callable[[], None]], Callable[[], None]]
# Capturing costs the host about three steps: it is not done for fewer repetitions than these.
FEWEST = 8
ROOM = 1024  # tokens that a batch gets room for at once, of an answer that may end long before its limit


def forward(
    model: PreTrainedModel | OneToken, cache: BatchCache | DeviceCache, ids: Tensor, **options: object
) -> Tensor:
    """One pass over ids [sequences, q]: logits [sequences, q, vocab_size]."""
    logits = model(input_ids=ids.to(model.device), **as_argument(model, cache), use_cache=True, **options).logits
    cache.count(ids.shape[1])
    return logits


def step(model: PreTrainedModel | OneToken, cache: BatchCache | DeviceCache, ids: Tensor, positions: Tensor) -> Tensor:
    """Append one token to each sequence, ids [sequences], and return the logits after it, [sequences, vocab_size].

    positions [1, 1] is that of the token, and afterwards that of the next one: a repeated step advances by itself.
    """
    logits = forward(model, cache, ids[:, None], position_ids=positions)[:, -1]
    positions += 1
    return logits


class Steps:
    """The steps of a batch. With `capture` a step is recorded after each change of the rows or their buffers, and
    repeated while all caches have tokens `ahead` (see `Pack.ahead`); Python launches the others.
    `fused`: the model with compiled layers, of which a step is recorded (see `kvbench.evaluation.fused_layers`).
    `choose`: numbers for each row by the logits alone, the tokens first. They are recorded with the step, and the
    tokens go where the next one reads them; `chosen` is what the last step chose, or None if Python launched it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: BatchCache,
        capture: Capture | None = None,
        fused: PreTrainedModel | None = None,
        choose: Callable[[Tensor], Sequence[Tensor]] | None = None,
    ):
        self.model, self.cache, self.capture, self.fused = OneToken(model), cache, capture, fused
        self.positions = torch.full((1, 1), cache.get_seq_length(), device=model.device)  # of the next token, every row
        self.choose = choose
        self.choice: Tensor  # numbers of the recording, which the next repetition overwrites
        self.chosen: Sequence[Tensor] | None = None
        self.ids: Tensor
        self.logits: Tensor
        self.repeat: Callable[[], None] | None = None
        self.repeats = False  # whether the last step was one of a recording: the first is the one that was recorded
        self.moves: list[int] | None = None  # those of the cache at the last eager step, which made a step's tables
        self.compiled: list[int] | None = None  # those at the last step that compiled what is recorded

    def __call__(self, ids: Tensor, left: int) -> Tensor:
        """The logits [sequences, vocab_size] after one more token ids [sequences]; at most `left` steps follow."""
        if self.capture is None:
            return step(self.model, self.cache, ids, self.positions)
        there = self.chosen is not None and ids is self.chosen[0]
        self.chosen = None
        ahead = self.cache.ahead
        self.cache.make_way()
        if self.repeat is not None and ahead:
            if not there:
                self.ids.copy_(ids)
            self.repeat()
            self.repeats = True
            self.cache.advance()
            return self._results()
        if not (ahead or self.cache.room):
            self.cache.make_room(min(left + 1, ROOM))
        moves, repeats = self.cache.moves, min(self.cache.room - 1, left)
        if ahead and moves == self.moves and repeats >= FEWEST:
            self.ids = ids.clone()
            if self.fused is not None and moves != self.compiled:
                return self._compile()
            if self._record(self.capture):
                return self._results()
        self.repeats = False
        logits = step(self.model, self.cache, ids, self.positions)
        if self.cache.moves != self.moves:
            self.repeat, self.moves = None, self.cache.moves
        return logits

    def changed(self) -> None:
        """Forget what was recorded: the batch has other rows now."""
        self.repeat = self.moves = self.compiled = None

    def _compile(self) -> Tensor:
        """A step of compiled layers that Python launches: nothing may be compiled while a step is recorded."""
        with compiling():
            self._one()
        self.compiled, self.repeats = self.moves, False
        return self._results()

    def _record(self, capture: Capture) -> bool:
        """Record this step and run it once. Where that fails, nothing has been done, and Python launches all steps."""
        before = self.cache.counted()
        try:
            self.repeat = capture(self._one)
        except RuntimeError as error:
            warn_once(
                f"decoding is launched step by step, since a step cannot be captured: {str(error).splitlines()[0]}"
            )
            self.cache.restore(before)
            self.capture = None
        self.repeats = self.repeat is not None
        return self.repeats

    def _one(self) -> None:
        if self.fused is None:
            self.logits = step(self.model.model, self.cache, self.ids, self.positions)
        else:
            self.logits = step(self.fused, DeviceCache(self.cache), self.ids, self.positions)
            self.cache.advance()
        if self.choose is not None:
            self.choice = torch.stack([part.long() for part in self.choose(self.logits)])
            self.ids.copy_(self.choice[0])

    def _results(self) -> Tensor:
        """The logits after `_one`, which also chose."""
        if self.choose is not None:
            self.chosen = self.choice.clone().unbind()
        return self.logits


def capture_of(engine: str, model: PreTrainedModel) -> Capture | None:
    """How `decode.engine` decodes with a model: None launches every step, as a model on a CPU or on several GPUs needs.

    Raises UserError where engine=graph or fused and the model is not on one GPU.
    """
    devices = gpus(model)
    whole = len(devices) == 1 and not offloaded(model)
    if engine in ("graph", "fused") and not whole:
        where = f"{len(devices)} GPUs" if len(devices) > 1 else "a GPU in part" if devices else "a CPU"
        raise UserError(f"decode.engine={engine} needs a model on one GPU, and this one is on {where}: auto or eager")
    if engine == "eager" or not whole or model.device.type != "cuda":
        return None
    return cuda_graph


def fused_of(engine: str, model: PreTrainedModel) -> PreTrainedModel | None:
    """The model with compiled layers whose steps `decode.engine` records; None: those of the model itself."""
    return fused(model) if engine == "fused" else None
