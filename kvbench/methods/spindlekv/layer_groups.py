"""Groups of layers, or of a layer's sets, that a GPU works on at the same time: as many as fit in its memory, because a
launch for few costs as much as one for many."""

from collections.abc import Hashable, Sequence

import torch

from kvbench.prefill import LayerState

# Bytes that this work takes on a GPU at a time: enough for all layers of a short prompt, to keep it busy.
AT_ONCE = 2**31


def layer_groups(layers: Sequence[LayerState], sizes: Sequence[int], kinds: Sequence[Hashable]) -> list[slice]:
    """Neighbouring layers of one kind to work on at the same time; single layers on a CPU.

    sizes   bytes that the work on each layer takes.
    """
    return groups(sizes, kinds, AT_ONCE if layers and layers[0].keys.is_cuda else 0)


def set_groups(sets: int, size: int, device: torch.device) -> list[slice]:
    """Equal sets to work on at the same time, of `size` bytes each; all sets on a CPU, which takes one by one."""
    return groups([size] * sets, [None] * sets, AT_ONCE) if device.type == "cuda" else [slice(0, sets)]


def groups(sizes: Sequence[int], kinds: Sequence[Hashable], most: int) -> list[slice]:
    """Neighbours of one kind whose `sizes` add up to at most `most`, or a single one that is larger."""
    parts, start, held = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (held + size > most or kinds[index] != kinds[start]):
            parts.append(slice(start, index))
            start, held = index, 0
        held += size
    return [*parts, slice(start, len(sizes))] if sizes else []
