"""Decoding steps that are recorded once and repeated without Python: as a CUDA graph, perhaps of compiled layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.errors import UserError
from kvbench.evaluation.cuda_graph import cuda_graph
from kvbench.evaluation.fused_layers import DeviceCache, compiling, fused
from kvbench.evaluation.steps import Steps, step
from kvbench.models.probe import counts_positions
from kvbench.utils.console import warn_once
from kvbench.utils.device import gpus, offloaded

# Runs work() once on the device, and returns a function that repeats its device operations without Python.
Capture = Callable[[Callable[[], None]], Callable[[], None]]
# Fewest repetitions for which a step is captured; capturing costs the host about three steps.
FEWEST = 8
ROOM = 1024  # tokens for which a batch gets room at once: an answer may end long before its limit


@dataclass(frozen=True)
class Recording:
    """How steps are recorded. `fused`: the model with compiled layers, whose steps are recorded if a batch's caches
    permit (see `kvbench.evaluation.fused_layers`)."""

    capture: Capture
    fused: PreTrainedModel | None = None


class RecordedSteps(Steps):
    """A step is recorded after each change of the rows or their buffers, and repeated while all caches have tokens
    `ahead` (see `RowsLayer.ahead`); Python launches the others.

    `choose` makes numbers for each row from the logits alone, the tokens first. It is recorded with the step, and its
    tokens go where the next step reads them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: BatchCache,
        recording: Recording,
        choose: Callable[[Tensor], Sequence[Tensor]] | None = None,
    ):
        super().__init__(model, cache)
        self.capture, self.records = recording.capture, True
        self.fused = recording.fused if cache.fuses else None
        self.repeats_of = "fused" if self.fused else "graph"
        self.choose = choose
        self.choice: Tensor  # numbers of the recording, which the next repetition overwrites
        self.ids: Tensor
        self.logits: Tensor
        self.repeat: Callable[[], None] | None = None
        self.moves: list[int] | None = None  # the cache's at the last eager step, which made a step's tables
        self.compiled: list[int] | None = None  # the cache's at the last step that compiled the layers

    def __call__(self, ids: Tensor, left: int) -> Tensor:
        if not self.records:  # a step could not be captured
            return super().__call__(ids, left)
        in_place = self.chosen is not None and ids is self.chosen[0]
        self.chosen = None
        ahead = self.cache.ahead
        self.cache.make_way()
        if self.repeat is not None and ahead:
            if not in_place:
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
            if self._record():
                return self._results()
        self.repeats = False
        logits = super().__call__(ids, left)
        if self.cache.moves != self.moves:
            self.repeat, self.moves = None, self.cache.moves
        return logits

    def changed(self) -> None:
        """Delete the recorded graphs."""
        self.repeat = self.moves = self.compiled = None

    def _compile(self) -> Tensor:
        """Launch a step of compiled layers from Python: nothing may be compiled while a step is recorded."""
        with compiling():
            self._step()
        self.compiled, self.repeats = self.moves, False
        return self._results()

    def _record(self) -> bool:
        """Record this step and run it once. If that fails, nothing has been done, and Python launches all steps."""
        before = self.cache.counted()
        try:
            self.repeat = self.capture(self._step)
        except RuntimeError as error:
            warn_once(
                f"decoding is launched step by step, since a step cannot be captured: {str(error).splitlines()[0]}"
            )
            self.cache.restore(before)
            self.records = False
        self.repeats = self.repeat is not None
        return self.repeats

    def _step(self) -> None:
        if self.fused is None:
            self.logits = step(self.model, self.cache, self.ids, self.positions)
        else:
            self.logits = step(self.fused, DeviceCache(self.cache), self.ids, self.positions)
            self.cache.advance()
        if self.choose is not None:
            self.choice = torch.stack([part.long() for part in self.choose(self.logits)])
            self.ids.copy_(self.choice[0])

    def _results(self) -> Tensor:
        """The logits after `_step`, which also chose."""
        if self.choose is not None:
            self.chosen = self.choice.clone().unbind()
        return self.logits


def recording_of(engine: str, model: PreTrainedModel) -> Recording | None:
    """How `decode.engine` records the steps of a model; None: Python launches every step, as a model on a CPU or on
    several GPUs needs.

    Raises UserError if engine is graph or fused and the model is not on one GPU, or counts its positions itself.
    """
    devices = gpus(model)
    on_one_gpu = len(devices) == 1 and not offloaded(model)
    if engine in ("graph", "fused") and not on_one_gpu:
        where = f"{len(devices)} GPUs" if len(devices) > 1 else "a GPU in part" if devices else "a CPU"
        raise UserError(f"decode.engine={engine} needs a model on one GPU, and this one is on {where}: auto or eager")
    if engine == "eager" or not on_one_gpu or model.device.type != "cuda":
        return None
    if counts_positions(model):
        reason = "this model takes a token's position from the length of its cache, which a recorded step would repeat"
        if engine != "auto":
            raise UserError(f"decode.engine={engine}: {reason}: auto or eager")
        warn_once(f"decoding is launched step by step: {reason}")
        return None
    return Recording(cuda_graph, fused(model) if engine == "fused" else None)
