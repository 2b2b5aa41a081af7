"""Floating-point operations and bytes of a model, from the numbers of its shape alone."""

from collections.abc import Iterable


def forward_flops(
    parameters: int, windows: Iterable[int | None], num_attention_heads: int, head_dim: int, n: int
) -> int:
    """Floating-point operations of a prompt of n tokens: two for each weight and token, and causal attention.

    Attention takes 4 · num_attention_heads · head_dim for each query and key (QKᵀ and the product with V). A query has
    n / 2 keys on average, or at most its window: `windows` has one per layer with attention, None for all tokens.
    """
    keys = sum(n if window is None else min(n, 2 * window) for window in windows)
    return 2 * parameters * n + 2 * keys * num_attention_heads * head_dim * n


def token_bytes(num_layers: int, num_key_value_heads: int, head_dim: int, itemsize: int) -> int:
    """Bytes of one token's keys and values in all layers, for numbers of `itemsize` bytes."""
    return 2 * num_layers * num_key_value_heads * head_dim * itemsize
