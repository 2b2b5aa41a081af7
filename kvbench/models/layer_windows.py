"""Which layers of a model attend to a sliding window, and which to all tokens."""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from kvbench.errors import UserError

Windows = tuple[int | None, ...]  # by layer, lowest first: the tokens that it attends to; None: all of them

FULL, SLIDING = "full_attention", "sliding_attention"


def windows_of(config: PreTrainedConfig) -> Windows:
    """The window of each layer of a model's configuration. A window that holds every text the model takes is none.

    A query attends to itself and the window - 1 tokens before it. Raises UserError for layers of other kinds (chunked
    or linear attention, convolutions) and for layers that read the keys and values of others.
    """
    config = config.get_text_config(decoder=True)
    count, window = config.num_hidden_layers, getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or [FULL if window is None else SLIDING] * count
    if others := sorted(set(types) - {FULL, SLIDING}):
        raise UserError(f"this model has layers of {others[0]!r}, for which kvbench has no cache")
    if getattr(config, "num_kv_shared_layers", None):
        raise UserError("this model has layers that read other layers' keys and values, for which kvbench has no cache")
    longest = getattr(config, "max_position_embeddings", None)
    if window is not None and longest is not None and window >= longest:
        window = None
    return tuple(window if kind == SLIDING else None for kind in types)


def sliding_windows(config: PreTrainedConfig, n: int) -> Windows:
    """`windows_of` for a prompt of n tokens; none where every layer has one that holds the prompt.

    Methods compress the layers without a window. Where a model has only sliding ones (Mistral-7B-v0.1), they compress
    all, as long as no window is exceeded.
    """
    windows = windows_of(config)
    if all(window is not None and n <= window for window in windows):
        return (None,) * len(windows)
    return windows


def full_layers(windows: Sequence[int | None]) -> list[int]:
    """The numbers of the layers that attend to all tokens, lowest first: those that methods compress."""
    return [index for index, window in enumerate(windows) if window is None]
