"""What a pass that releases its layers still holds of them: nothing, whatever methods observe."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kvbench.prefill import FullPrefill, LayerState, PrefillPlan
from kvbench.prefill.chunked import ChunkedPrefill
from tests.support.every_method import LAYERS, model, observed
from tests.support.tiny import prompt


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors of a layer's state but the table of its rotation, which layers share."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif is_dataclass(value):
        for field in fields(value):
            if field.name != "rope":
                yield from tensors_in(getattr(value, field.name))


@pytest.mark.parametrize("plan", [FullPrefill(), ChunkedPrefill(20)], ids=["whole", "in chunks"])
def test_a_released_layer_is_freed_before_the_next_one_with_all_that_was_observed(plan: PrefillPlan):
    earlier: list[StorageWeakRef] = []
    alive, released = [], []

    def release(layer: LayerState) -> None:
        alive.append(sum(not memory.expired() for memory in earlier))
        of_layer = [StorageWeakRef(x.untyped_storage()) for x in tensors_in(layer)]
        released.append(len(of_layer))
        earlier.extend(of_layer)

    plan.run(model(), prompt(90), observed(second_passes=False), release)
    assert alive == [0] * LAYERS and min(released) > 10
