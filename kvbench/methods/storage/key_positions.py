"""Positions of the keys that a storage holds before RoPE."""

from kvbench.cache.coded.positions import KeyPositions
from kvbench.methods.selection import Selection
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState


def key_positions(layer: LayerState, selection: Selection, who: str) -> KeyPositions:
    """The positions of a layer's kept keys, for the storage `who`.

    Raises UserError for a model without rotation, or with one that depends on more than positions.
    """
    rope = fixed_rotation(layer.rope, who)
    return KeyPositions(rope, selection.indices, selection.count(layer), layer.seen, layer.keys.device)
