"""Trimming whole layers to sinks and recent tokens: what SimLayerKV and its random controls share."""

from kvbench.methods.selection import Selection, sinks_and_recent
from kvbench.prefill import LayerState


def trimmed(layer: LayerState, sinks: int, recent: int) -> Selection:
    """The first `sinks` and last `recent` tokens of a layer; all of them, each once, where the two meet."""
    if layer.n <= sinks + recent:
        return Selection.everything(layer)
    return Selection(sinks_and_recent(layer.n, sinks, recent, layer.keys.device), sinks + recent)


def layers_to_trim(n: int, short: int, budget: int, num_layers: int) -> int:
    """The fewest of `num_layers` layers to trim from n to `short` tokens for a mean of at most `budget`.

    All of them where even that is above the budget; none where trimming frees nothing.
    """
    if short >= n or budget >= n:
        return 0
    return min(num_layers, -(-num_layers * (n - budget) // (n - short)))
