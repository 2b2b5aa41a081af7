"""A prediction of what `make gpu` would measure on an H100, as ranges, from counts, bytes and the host's measured time.

    python -m scripts.results.predict_gpu            # writes results/gpu/prediction.md and prediction.json

Nothing here is measured on a GPU. Kernels and operations are counted (launches.json of results/benchmarks, from
bench_launches.py), the host's time of a token is measured (host_time.json, from bench_host.py), and bytes and
floating-point operations follow from Llama-3-8B's shape. Formulas are in decoding.py, prefill.py and codebook.py of
scripts/results/prediction; everything else, with its source, in assumptions.py. A range is the least and the most over
all combinations of fast and slow values, so the truth should lie inside of it and not at its edges.
"""

import json
from math import fsum  # `sum` rounds otherwise from Python 3.12 on
from pathlib import Path
from typing import NamedTuple

from scripts.frame import script_parser
from scripts.results.prediction.assumptions import CODEBOOK, DECODING, HOST, PREFILL, Assumptions, Range, between, rows
from scripts.results.prediction.codebook import codebook_seconds, groups_of
from scripts.results.prediction.decoding import ENGINES, RATIO, Engine, limit, rates, seconds, step_of
from scripts.results.prediction.llama import L, cache_bytes
from scripts.results.prediction.prefill import prefill_seconds, sums_seconds
from scripts.results.prediction.report import markdown

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "results" / "benchmarks"
OUT = ROOT / "results" / "gpu"
FIRST = OUT / "prediction_first.json"  # what an earlier version of this script wrote
LENGTHS = (8192, 32768, 131072)
ROWS = (1, 12)
CHUNK = 16384
# preset → bytes of its cache over FullKV's: KIVI's are 4 bits with a scale and a minimum for 32 values, and
# SpindleKV's its ratio. snapkv stands for every method that drops tokens and keeps the others as they are.
SETTINGS = {"full": 1.0, "snapkv": RATIO, "kivi": 0.375, "spindle": RATIO}
TWELVE = [1.0, 0.1, 0.2, *[0.1, 0.2, 0.4] * 3]  # of scripts/benchmarks/bench_shared_prefill.py
COMPRESSED = ("streaming_llm", "snapkv", "pyramidkv", "kivi", "spindlekv_paper", "spindle")


class Known(NamedTuple):
    """What was counted and measured: launches.json's `after`, host_time.json, and the rows of codebook_8k.json."""

    counts: dict
    host: dict
    covers: dict


def known() -> Known:
    counts, host, covers = (
        json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("launches", "host_time", "codebook_8k")
    )
    return Known(counts["after"], host, covers["rows"])


def compress_seconds(name: str, n: int, known: Known, assumed: Assumptions) -> float:
    """Of a prompt: operations of the host, each as long as one of a decoded token; launches; SpindleKV's codebook."""
    counts = known.counts
    full = known.host["generate_ms_per_token"] / 1000 * known.host["ratio_median"]["full"]
    operation = full * assumed.host / (L * counts["presets"]["full"]["decode"]["operations"])
    if name not in counts["search"]:
        launches = counts["presets"][name]["compress"]
        return L * (launches["operations"] * operation + launches["kernels"] * assumed.launch)
    kept, launches = round(RATIO * n), counts["search"][name]
    groups = groups_of(kept)
    host = groups * (launches["operations"] * operation + launches["kernels"] * assumed.launch)
    return host + launches["tries"] * codebook_seconds(kept, known.covers, assumed)


def decoding(n: int, many: int, known: Known) -> dict:
    """Tokens per second of `many` rows of each setting: a range for each engine, and the limit; none if too large."""
    by_setting = {}
    for name, share in SETTINGS.items():
        step = step_of(name, share, n, many, known.counts, known.host)
        speeds = {engine: rates(step, engine)._asdict() for engine in ENGINES} | {"limit": limit(step)}
        by_setting[name] = speeds if step.fits else None
    return by_setting


def twelve_times(n: int, engine: Engine, known: Known) -> Range:
    """How many times faster twelve settings decode as one batch than one by one."""
    alone = [step_of("full", share, n, 1, known.counts, known.host) for share in TWELVE]
    every = tuple(cache_bytes(n, share) for share in TWELVE)
    together = step_of("full", 1.0, n, 12, known.counts, known.host)._replace(row_bytes=every)

    def times(assumed: Assumptions) -> float:
        return fsum(seconds(step, engine, assumed) for step in alone) / seconds(together, engine, assumed)

    return between(times, DECODING)


def of_length(n: int, known: Known) -> dict:
    def with_sums(assumed: Assumptions, passes: int) -> float:
        return 1 + sums_seconds(n, assumed, passes) / prefill_seconds(n, assumed)

    def compression(name: str) -> Range:
        def share(assumed: Assumptions) -> float:
            return compress_seconds(name, n, known, assumed) / prefill_seconds(n, assumed)

        return between(share, (*HOST, *PREFILL, *CODEBOOK))

    return {
        "n": n,
        "prefill_seconds": between(lambda assumed: prefill_seconds(n, assumed), PREFILL)._asdict(),
        "chunked_prefill_seconds": between(lambda assumed: prefill_seconds(n, assumed, CHUNK), PREFILL)._asdict(),
        "prefill_with_sums_over_plain": {
            f"{passes} passes": between(lambda assumed, passes=passes: with_sums(assumed, passes), PREFILL)._asdict()
            for passes in (2, 1)
        },
        "compress_over_prefill": {name: compression(name)._asdict() for name in COMPRESSED},
        "twelve_settings_times_faster": {engine: twelve_times(n, engine, known)._asdict() for engine in ENGINES},
        "rows": {str(many): decoding(n, many, known) for many in ROWS},
    }


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    have = known()
    lengths = [of_length(n, have) for n in LENGTHS]
    made = {"what": "a prediction, not a measurement", "counts": have.counts["git"], "host": have.host["git"]}
    options.out.mkdir(parents=True, exist_ok=True)
    written = json.dumps(made | {"lengths": lengths}, indent=1) + "\n"
    (options.out / "prediction.json").write_text(written, encoding="utf-8")
    first = json.loads(FIRST.read_text(encoding="utf-8"))
    text = markdown(made, lengths, {length["n"]: length for length in first["lengths"]}, rows())
    (options.out / "prediction.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
