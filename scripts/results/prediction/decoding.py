"""Seconds of one decoded token.

weights    WEIGHT_BYTES / (bandwidth · weights)          the embedding table is not read
caches     rows · bytes of a cache / (bandwidth · cache), or codes for coded caches
small      (L · (kernels of a layer - LARGE) + OUTSIDE) · small_kernel
the GPU    weights + caches + small: kernels run one after the other, so their times add up
the host   measured CPU time · host + all kernels · launch
eager      the longer of the host and the GPU, which work at the same time
graph      the GPU alone: the host launches one graph
fused      the same with fewer small kernels, and FUSED_LARGE in place of LARGE
limit      all bytes at the peak of the data sheet, and nothing else
"""

from math import fsum  # `sum` rounds otherwise from Python 3.12 on
from typing import Literal, NamedTuple

from scripts.results.prediction.assumptions import DECODING, MEMORY, PEAK_BANDWIDTH, Assumptions, Range, between
from scripts.results.prediction.llama import WEIGHT_BYTES, L, P, cache_bytes

Engine = Literal["eager", "graph", "fused"]
ENGINES: tuple[Engine, ...] = ("eager", "graph", "fused")
LARGE = 8  # of a layer's kernels those whose bytes are counted: seven products and attention
FUSED_LARGE = 5  # q, k and v are one product, gate and up another
OUTSIDE = 25  # small kernels outside of the layers: embedding, norm, choosing the token
RATIO = 0.2
CODED = ("kivi", "spindle")


class Step(NamedTuple):
    """What a step of one setting is made of: a layer's kernels, the host's seconds as measured, each row's bytes."""

    kernels: float
    host: tuple[float, float]  # the least and the most that it may be
    row_bytes: tuple[float, ...]
    coded: bool = False

    @property
    def fits(self) -> bool:
        return 2 * P + fsum(self.row_bytes) <= MEMORY


def gpu_seconds(step: Step, small: float, assumed: Assumptions) -> float:
    """`small`: kernels of a layer whose bytes are not counted."""
    reached = assumed.codes if step.coded else assumed.cache
    moved = WEIGHT_BYTES / assumed.weights + fsum(step.row_bytes) / reached
    return moved / PEAK_BANDWIDTH + (L * small + OUTSIDE) * assumed.small_kernel


def host_seconds(step: Step, assumed: Assumptions) -> float:
    least, most = step.host
    measured = least + assumed.arithmetic * (most - least)
    return measured * assumed.host + (L * step.kernels + OUTSIDE) * assumed.launch


def seconds(step: Step, engine: Engine, assumed: Assumptions) -> float:
    if engine == "fused":
        return gpu_seconds(step, min(assumed.fused_kernels - FUSED_LARGE, step.kernels - LARGE), assumed)
    alone = gpu_seconds(step, step.kernels - LARGE, assumed)
    return alone if engine == "graph" else max(alone, host_seconds(step, assumed))


def limit(step: Step) -> float:
    """Tokens per second at the peak of the memory."""
    return len(step.row_bytes) * PEAK_BANDWIDTH / (WEIGHT_BYTES + fsum(step.row_bytes))


def rates(step: Step, engine: Engine) -> Range:
    """Tokens per second, of all rows together."""
    return between(lambda assumed: len(step.row_bytes) / seconds(step, engine, assumed), DECODING)


def step_of(name: str, share: float, n: int, rows: int, counts: dict, host: dict) -> Step:
    """`counts` are launches.json's, `host` is host_time.json; `share` is the bytes of the cache over FullKV's."""
    launches = counts["twelve_settings"]["batch"] if rows > 1 else counts["presets"][name]["decode"]
    measured = host["ratio_median"].get(name if rows == 1 else "full, 12 rows")
    return Step(
        launches["kernels"],
        host_range(launches["operations"], measured, counts, host),
        (cache_bytes(n, share),) * rows,
        name in CODED,
    )


def host_range(operations: float, measured: float | None, counts: dict, host: dict) -> tuple[float, float]:
    """The host's seconds of a step: by operations of a layer, from FullKV's, and as measured where it was.

    The measured time has the CPU's arithmetic in it, which is more for codes and for twelve rows.
    """
    generated, full = host["generate_ms_per_token"] / 1000, host["ratio_median"]["full"]
    counted = generated * full * operations / counts["presets"]["full"]["decode"]["operations"]
    known = counted if measured is None else generated * measured
    return min(counted, known), max(counted, known)
