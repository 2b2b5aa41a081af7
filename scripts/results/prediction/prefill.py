"""Seconds of a prompt: its products, its attention, the passes of column sums over queries and keys."""

from scripts.results.prediction.assumptions import PEAK_FLOPS, Assumptions
from scripts.results.prediction.llama import MULTIPLIED, D, H, L


def product_seconds(n: int, assumed: Assumptions) -> float:
    return 2 * MULTIPLIED * n / (PEAK_FLOPS * assumed.products)


def attention_seconds(n: int, share: float) -> float:
    """QKᵀ and the product with V, causal: half of 4 L H d n²."""
    return 2 * L * H * D * n**2 / (PEAK_FLOPS * share)


def prefill_seconds(n: int, assumed: Assumptions, chunk: int | None = None) -> float:
    """In chunks of `chunk` tokens; the first one, which has none before it, is attention over a whole prompt."""
    first = min(chunk or n, n)
    whole = attention_seconds(first, assumed.attention)
    rest = attention_seconds(n, assumed.chunked) - attention_seconds(first, assumed.chunked)
    return product_seconds(n, assumed) + whole + rest


def sums_seconds(n: int, assumed: Assumptions, passes: int) -> float:
    """Of column sums: one pass gives the log-sum-exps and one the sums, each a causal QKᵀ: half of 2 L H d n²."""
    return passes * L * H * D * n**2 / (PEAK_FLOPS * assumed.sums)
