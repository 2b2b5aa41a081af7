"""Decoding steps: one pass of the model for one token of each sequence, launched by Python or repeated as a graph."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.errors import UserError
from kvbench.evaluation.fused_layers import DeviceCache, compiling, fused
from kvbench.utils.console import warn
from kvbench.utils.device import gpus

# Runs work() once on the device, and returns what repeats its device operations without Python.
Capture = Callable[[Callable[[], None]], Callable[[], None]]
# Capturing costs the host about three steps: it is not done for fewer repetitions than these.
FEWEST = 8
ROOM = 1024  # tokens that a batch gets room for at once, of an answer that may end long before its limit


def forward(model: PreTrainedModel, cache: BatchCache | DeviceCache, ids: Tensor, **options: object) -> Tensor:
    """One pass over ids [sequences, q]: logits [sequences, q, vocab_size]."""
    logits = model(input_ids=ids.to(model.device), past_key_values=cache, use_cache=True, **options).logits
    cache.count(ids.shape[1])
    return logits


def step(model: PreTrainedModel, cache: BatchCache | DeviceCache, ids: Tensor, positions: Tensor) -> Tensor:
    """Append one token to each sequence, ids [sequences], and return the logits after it, [sequences, vocab_size].

    positions [1, 1] is that of the token, and afterwards that of the next one: a repeated step advances by itself.
    """
    logits = forward(model, cache, ids[:, None], position_ids=positions)[:, -1]
    positions += 1
    return logits


class Steps:
    """The steps of a batch. With `capture` a step is recorded after each change of the rows or their buffers, and
    repeated for as long as all caches have tokens `ahead` (see `Pack.ahead`); otherwise Python launches every step.
    `fused`: the model with compiled layers, of which a step is recorded (see `kvbench.evaluation.fused_layers`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: BatchCache,
        capture: Capture | None = None,
        fused: PreTrainedModel | None = None,
    ):
        self.model, self.cache, self.capture, self.fused = model, cache, capture, fused
        self.positions = torch.full((1, 1), cache.get_seq_length(), device=model.device)  # of the next token, every row
        self.ids: Tensor
        self.logits: Tensor
        self.repeat: Callable[[], None] | None = None
        self.ready = False  # an eager step has made the tables that a step reads
        self.compiled = False  # a step has compiled what is recorded

    def __call__(self, ids: Tensor, left: int) -> Tensor:
        """The logits [sequences, vocab_size] after one more token ids [sequences]; at most `left` steps follow."""
        ahead = self.cache.ahead if self.capture is not None else 0
        if self.repeat is not None and ahead:
            self.ids.copy_(ids)
            self.repeat()
            self.cache.advance()
            return self.logits
        self.repeat = None
        if self.capture is not None and not ahead:
            self.cache.make_room(min(left + 1, ROOM))
            self.ready = self.compiled = False
        if self.capture is not None and self.ready and min(ahead - 1, left) >= FEWEST:
            self.ids = ids.clone()
            if self.fused is not None and not self.compiled:
                return self._compile()
            self._record(self.capture)
            if self.repeat is not None:
                return self.logits
        logits = step(self.model, self.cache, ids, self.positions)
        self.ready = True
        return logits

    @property
    def repeats(self) -> bool:
        """Whether the last step was one of a recording: the first is the one that was recorded."""
        return self.repeat is not None

    def changed(self) -> None:
        """Forget what was recorded: the batch has other rows now."""
        self.repeat, self.ready, self.compiled = None, False, False

    def _compile(self) -> Tensor:
        """A step of compiled layers that Python launches: nothing may be compiled while a step is recorded."""
        with compiling():
            self._one()
        self.compiled = True
        return self.logits

    def _record(self, capture: Capture) -> None:
        """Record this step and run it once. Where that fails, nothing has been done, and Python launches all steps."""
        before = self.cache.counted()
        try:
            self.repeat = capture(self._one)
        except RuntimeError as error:
            warn(f"decoding is launched step by step, since a step cannot be captured: {str(error).splitlines()[0]}")
            self.cache.restore(before)
            self.capture = None

    def _one(self) -> None:
        if self.fused is None:
            self.logits = step(self.model, self.cache, self.ids, self.positions)
        else:
            self.logits = step(self.fused, DeviceCache(self.cache), self.ids, self.positions)
            self.cache.advance()


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """`Capture` on the current GPU."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # records; nothing runs
        work()
    graph.replay()

    def repeat() -> None:
        graph.replay()

    return repeat


def capture_of(engine: str, model: PreTrainedModel) -> Capture | None:
    """How `decode.engine` decodes with a model: None launches every step, as a model on a CPU or on several GPUs needs.

    Raises UserError where engine=graph or fused and the model is not on one GPU.
    """
    devices = gpus(model)
    if engine in ("graph", "fused") and len(devices) != 1:
        where = f"{len(devices)} GPUs" if devices else "a CPU"
        raise UserError(f"decode.engine={engine} needs a model on one GPU, and this one is on {where}: auto or eager")
    if engine == "eager" or len(devices) != 1 or model.device.type != "cuda":
        return None
    return cuda_graph


def fused_of(engine: str, model: PreTrainedModel) -> PreTrainedModel | None:
    """The model with compiled layers whose steps `decode.engine` records; None: those of the model itself."""
    return fused(model) if engine == "fused" else None
