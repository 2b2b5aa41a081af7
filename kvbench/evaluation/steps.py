"""Decoding steps: one pass of the model for one token of each sequence, launched by Python or repeated as a graph."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.errors import UserError
from kvbench.utils.console import warn
from kvbench.utils.device import gpus

# Runs work() once on the device, and returns what repeats its device operations without Python.
Capture = Callable[[Callable[[], None]], Callable[[], None]]
# Capturing costs the host about three steps: it is not done for fewer repetitions than these.
FEWEST = 8
ROOM = 1024  # tokens that a batch gets room for at once, of an answer that may end long before its limit


def forward(model: PreTrainedModel, cache: BatchCache, ids: Tensor, **options: object) -> Tensor:
    """One pass over ids [sequences, q]: logits [sequences, q, vocab_size]."""
    logits = model(input_ids=ids.to(model.device), past_key_values=cache, use_cache=True, **options).logits
    cache.count(ids.shape[1])
    return logits


def step(model: PreTrainedModel, cache: BatchCache, ids: Tensor, positions: Tensor) -> Tensor:
    """Append one token to each sequence, ids [sequences], and return the logits after it, [sequences, vocab_size].

    positions [1, 1] is that of the token, and afterwards that of the next one: a repeated step advances by itself.
    """
    logits = forward(model, cache, ids[:, None], position_ids=positions)[:, -1]
    positions += 1
    return logits


class Steps:
    """The steps of a batch. With `capture` a step is recorded after each change of the rows or their buffers, and
    repeated while all caches have tokens `ahead` (see `Pack.ahead`); Python launches the others.
    """

    def __init__(self, model: PreTrainedModel, cache: BatchCache, capture: Capture | None = None):
        self.model, self.cache, self.capture = model, cache, capture
        self.positions = torch.full((1, 1), cache.get_seq_length(), device=model.device)  # of the next token, every row
        self.repeat: Callable[[], None] | None = None
        self.repeats = False  # whether the last step was one of a recording: the first is the one that was recorded
        self.moves: list[int] | None = None  # those of the cache at the last eager step, which made a step's tables

    def __call__(self, ids: Tensor, left: int) -> Tensor:
        """The logits [sequences, vocab_size] after one more token ids [sequences]; at most `left` steps follow."""
        if self.capture is None:
            return step(self.model, self.cache, ids, self.positions)
        ahead = self.cache.ahead
        self.cache.make_way()
        if self.repeat is not None and ahead:
            self.ids.copy_(ids)
            self.repeat()
            self.repeats = True
            self.cache.advance()
            return self.logits
        if not (ahead or self.cache.room):
            self.cache.make_room(min(left + 1, ROOM))
        moves, repeats = self.cache.moves, min(self.cache.room - 1, left)
        if ahead and moves == self.moves and repeats >= FEWEST and self._record(ids, self.capture):
            return self.logits
        self.repeats = False
        logits = step(self.model, self.cache, ids, self.positions)
        if self.cache.moves != self.moves:
            self.repeat, self.moves = None, self.cache.moves
        return logits

    def changed(self) -> None:
        """Forget what was recorded: the batch has other rows now."""
        self.repeat = self.moves = None

    def _record(self, ids: Tensor, capture: Capture) -> bool:
        """Record this step and run it once. Where that fails, nothing has been done, and Python launches all steps."""
        before = self.cache.counted()
        self.ids = ids.clone()
        try:
            self.repeat = capture(self._one)
        except RuntimeError as error:
            warn(f"decoding is launched step by step, since a step cannot be captured: {str(error).splitlines()[0]}")
            self.cache.restore(before)
            self.capture = None
        self.repeats = self.repeat is not None
        return self.repeats

    def _one(self) -> None:
        self.logits = step(self.model, self.cache, self.ids, self.positions)


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """`Capture` on the current GPU."""
    graph = torch.cuda.CUDAGraph()
    with uncollected(), torch.cuda.graph(graph, pool=memory_pool()):  # records; nothing runs
        work()
    graph.replay()

    def repeat() -> None:
        graph.replay()

    return repeat


@cache
def memory_pool() -> tuple[int, int]:
    """What all graphs take their memory from: of a step only the logits are read, before another one is repeated."""
    pool: tuple[int, int] = torch.cuda.graph_pool_handle()
    return pool


@contextmanager
def uncollected() -> Iterator[None]:
    """Without collecting garbage, among which a tensor's memory may be that a stream may not free while it captures."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def capture_of(engine: str, model: PreTrainedModel) -> Capture | None:
    """How `decode.engine` decodes with a model: None launches every step, as a model on a CPU or on several GPUs needs.

    Raises UserError where engine=graph and the model is not on one GPU.
    """
    devices = gpus(model)
    if engine == "graph" and len(devices) != 1:
        where = f"{len(devices)} GPUs" if devices else "a CPU"
        raise UserError(f"decode.engine=graph needs a model on one GPU, and this one is on {where}: auto or eager")
    if engine == "eager" or len(devices) != 1 or model.device.type != "cuda":
        return None
    return cuda_graph
