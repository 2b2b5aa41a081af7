"""Groups of layers, or of a layer's sets, that a GPU processes at the same time: as many as fit in its memory, because
a launch for few layers takes as long as a launch for many."""

from collections.abc import Hashable, Sequence

import torch

from kvbench.prefill import LayerState

# Bytes of working memory on a GPU: enough for all layers of a short prompt, to keep the GPU busy.
AT_ONCE = 2**31


def layer_groups(layers: Sequence[LayerState], sizes: Sequence[int], kinds: Sequence[Hashable]) -> list[slice]:
    """Neighbouring layers of one kind to process at the same time; single layers on a CPU.

    sizes   bytes of working memory for each layer.
    """
    return groups(sizes, kinds, AT_ONCE if layers and layers[0].keys.is_cuda else 0)


def set_groups(sets: int, size: int, device: torch.device) -> list[slice]:
    """Sets of `size` bytes each to process at the same time; all sets on a CPU, which processes them one by one."""
    return groups([size] * sets, [None] * sets, AT_ONCE) if device.type == "cuda" else [slice(0, sets)]


def groups(sizes: Sequence[int], kinds: Sequence[Hashable], most: int) -> list[slice]:
    """Neighbours of one kind whose `sizes` add up to at most `most`; a larger item makes a group alone."""
    parts, start, held = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (held + size > most or kinds[index] != kinds[start]):
            parts.append(slice(start, index))
            start, held = index, 0
        held += size
    return [*parts, slice(start, len(sizes))] if sizes else []
