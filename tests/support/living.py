"""The bytes of keys, values and states that really live while a prompt is read and compressed."""

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kvbench.cache.base import Growing, StoredLayer
from kvbench.cache.held import Held
from kvbench.cache.sliding_window import ChunkLayer, WindowLayer
from kvbench.evaluation.prefill_passes import Stream
from kvbench.prefill.chunked import ChunkedLayer
from kvbench.prefill.evicting import EvictingLayer
from kvbench.prefill.full import CaptureLayer
from kvbench.prefill.second_pass import RereadLayer
from kvbench.prefill.state import LayerState

READING = (WindowLayer, ChunkLayer, CaptureLayer, ChunkedLayer, EvictingLayer, RereadLayer)


class Living:
    """Finds the tensors that layers and caches own, and adds up the storages that are not yet freed, whoever has them.

    It looks whenever a layer attends or is handed over, and whenever a tensor is counted, and keeps the largest sum.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.bytes: dict[StorageWeakRef, int] = {}
        self.most = 0
        for owner in READING:
            for name in ("attend", "reread"):
                if name in vars(owner):
                    self.look_before(monkeypatch, owner, name)
        self.look_before(monkeypatch, Stream, "count")
        replace = Held.replace

        def counted(held: Held, old: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
            self.look([new])
            return replace(held, old, new)

        monkeypatch.setattr(Held, "replace", counted)

    def look_before(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        """Look whenever this method begins, too."""
        method: Callable[..., Any] = vars(owner)[name]

        def looked(*arguments: Any) -> Any:
            self.look()
            return method(*arguments)

        monkeypatch.setattr(owner, name, looked)

    def look(self, more: Iterable[torch.Tensor] = ()) -> None:
        """Add up what lives now; `more` has tensors that no layer owns yet."""
        for tensor in [*more, *owned()]:
            storage = tensor.untyped_storage()
            self.bytes[StorageWeakRef(storage)] = storage.nbytes()
        self.bytes = {memory: size for memory, size in self.bytes.items() if not memory.expired()}
        self.most = max(self.most, sum(self.bytes.values()))

    def most_while(self, work: Callable[[], object]) -> int:
        """The most bytes that lived during `work`, and after it with its result; what is older does not count."""
        gc.freeze()
        self.bytes, self.most = {}, 0
        try:
            result = work()
            self.look()
            del result
            return self.most
        finally:
            gc.unfreeze()


def owned() -> Iterator[torch.Tensor]:
    """The tensors of all layers and caches made since `gc.freeze`."""
    for thing in gc.get_objects():
        if isinstance(thing, Growing):
            yield thing.buffer
        elif isinstance(thing, LayerState | StoredLayer):
            yield from thing.tensors()
        elif isinstance(thing, EvictingLayer) and thing.left is not None:
            yield from (thing.left.keys, thing.left.values)
        elif isinstance(thing, CaptureLayer | RereadLayer):
            own = [*(getattr(thing, "latents", None) or ()), *(getattr(thing, "stored", None) or ())]
            yield from (x for x in [thing.keys, thing.values, *own] if isinstance(x, torch.Tensor))
