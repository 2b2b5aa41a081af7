"""What a prediction for an H100 cannot count or measure without one: each number as a fast and a slow value, with its
source."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import NamedTuple

from kvbench.papers.gpu import H100

PEAK_FLOPS, PEAK_BANDWIDTH = H100.flops, H100.bandwidth  # of the data sheet of the SXM card
MEMORY = 80e9


@dataclass(frozen=True)
class Assumptions:
    """Shares are those of a peak that kernels reach; seconds are those of one kernel."""

    host: float
    arithmetic: float
    launch: float
    small_kernel: float
    fused_kernels: float
    weights: float
    cache: float
    codes: float
    products: float
    attention: float
    chunked: float
    sums: float
    codebook: float
    pick: float
    scan: float


FAST = Assumptions(
    host=0.8, arithmetic=0, launch=2e-6, small_kernel=1.5e-6, fused_kernels=9, weights=0.90, cache=0.85, codes=0.75,
    products=0.70, attention=0.65, chunked=0.40, sums=0.40, codebook=0.65, pick=2e-6, scan=1e-9,
)  # fmt: skip
SLOW = Assumptions(
    host=2.0, arithmetic=1, launch=5e-6, small_kernel=2.5e-6, fused_kernels=13, weights=0.75, cache=0.60, codes=0.25,
    products=0.50, attention=0.35, chunked=0.30, sums=0.20, codebook=0.35, pick=8e-6, scan=4e-9,
)  # fmt: skip
# Of each field: what it is, and where its two values come from.
SOURCES = {
    "host": (
        "CPU time of a step's Python and dispatch, over that measured here",
        "bench_host.py, on a virtual EPYC. Less on a faster core, and as the tiny "
        "model's arithmetic is included; more, as streams, allocator and cuBLAS are not. Public eager figures for 32 "
        "layers are 39 ms a token on an A100 (gpt-fast's first step, see `weights`) to 8.4 ms on an H100",
    ),
    "arithmetic": (
        "how much of what a setting took more than its operations explain is the host's",
        "all or nothing: on the CPU codes are decoded by torch, and attention of twelve rows is arithmetic",
    ),
    "launch": (
        "seconds of the driver for a kernel, on the host",
        "assumed; public measurements of cudaLaunchKernel are 2 to 6 µs",
    ),
    "small_kernel": (
        "seconds of a kernel on the GPU that moves next to nothing, with the gap to the next one",
        "assumed: 1.5 to 2.5 µs, in a graph too",
    ),
    "fused_kernels": (
        "kernels of a layer with norm, RoPE + append and SwiGLU fused, and products of one input merged",
        "4 products, attention and its combination, and 3 to 7 others; 13 are counted in fused.json",
    ),
    "weights": (
        "of the bandwidth, for products with one or twelve rows",
        "assumed; gpt-fast's 25.5 tokens/s × 4 on an A100 (pytorch.org/blog/accelerating-generative-ai-2) are 0.7 of "
        "its bandwidth for a whole compiled step, small kernels included",
    ),
    "cache": ("of the bandwidth, for attention over keys and values", "assumed; split over keys, a tail of blocks"),
    "codes": ("the same over codes", "assumed: the kernel decodes in registers and has not run on a GPU"),
    "products": ("of the operations, for a prompt's products", "assumed for cuBLAS in bfloat16"),
    "attention": (
        "of the operations, for a whole prompt's attention",
        "0.35 is FlashAttention-2 and 0.75 FlashAttention-3 at its best (arXiv 2407.08608); torch's cuDNN is between",
    ),
    "chunked": (
        "the same for a chunk after others",
        "its mask goes to torch's FlashAttention-2: 0.35 (arXiv 2407.08608), ± 0.05",
    ),
    "sums": (
        "the same for one pass of column sums",
        "assumed: Triton's product and an exponential for each logit, without FlashAttention-3's overlap",
    ),
    "codebook": ("of all peaks, for SpindleKV's greedy codebook", "assumed"),
    "pick": ("seconds of a step that a set of the codebook takes as a whole", "assumed"),
    "scan": ("seconds of looking at one more vector there", "assumed"),
}

HOST = ("host", "arithmetic", "launch")
DECODING = (*HOST, "small_kernel", "fused_kernels", "weights", "cache", "codes")
PREFILL = ("products", "attention", "chunked", "sums")
CODEBOOK = ("codebook", "pick", "scan")


class Range(NamedTuple):
    low: float
    high: float


def between(value: Callable[[Assumptions], float], names: Iterable[str]) -> Range:
    """The least and the most of `value`, as each of the assumptions it depends on is fast or slow."""
    names = list(names)
    corners = product((FAST, SLOW), repeat=len(names))
    results = [
        value(replace(FAST, **{name: getattr(each, name) for name, each in zip(names, corner, strict=True)}))
        for corner in corners
    ]
    return Range(min(results), max(results))


def rows() -> list[str]:
    """A table of all assumptions, with the fast and the slow value of each."""
    lines = ["| assumption | fast | slow | what it is | where it comes from |", "| :-- | --: | --: | :-- | :-- |"]
    for field in fields(Assumptions):
        what, source = SOURCES[field.name]
        low, high = (getattr(each, field.name) for each in (FAST, SLOW))
        shown = (f"{value * 1e6:g} µs" if 0 < value < 1e-3 else f"{value:g}" for value in (low, high))
        lines.append(f"| {field.name} | {' | '.join(shown)} | {what} | {source} |")
    return lines
