"""bfloat16 beside float32 on a CPU: what it costs, and what it changes in scores.

The products that a prefill consists of are timed first, also with fewer instructions than the CPU has: oneDNN then
computes as on an older one. Prefill and decoding of one prompt are timed apart, with the two dtypes in turns; the ratio
reported is the median over rounds. Then needle prompts, each with another number in another text, run through kvbench
in both dtypes: differences of scores are paired by sample. CPU seconds are of the whole process.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from operator import or_
from statistics import median

import pandas as pd
import torch
import torch.nn.functional as F

import kvbench
from kvbench.configuration.conf import composed
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import build_settings
from kvbench.metrics.bootstrap import paired_interval
from kvbench.prefill import prefill
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

METHODS = ("full", "streaming_llm", "h2o", "snapkv", "pyramidkv", "expected_attention", "kivi")
DECODED = ("full", "snapkv", "kivi")  # KIVI's codes are read by a compiled loop
RATIO = 0.4
DTYPES = ("float32", "bfloat16")
LENGTHS = (512, 1024)
# The most that oneDNN may use: all that the CPU has, AVX-512 without bfloat16, AVX2.
INSTRUCTIONS = {"all": None, "avx512": "AVX512_CORE", "avx2": "AVX2"}
SHAPE = (1000, 576, 1536)  # tokens, hidden and inner channels of SmolLM2-135M


def cpu_seconds(work: Callable[[], object], times: int) -> float:
    work()
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times


@torch.inference_mode()
def products() -> dict[str, float]:
    """CPU seconds in float32 over those in bfloat16: of tokens with weights, and of their causal attention."""
    tokens, hidden, inner = SHAPE
    seconds: dict[str, dict[str, float]] = {"weights": {}, "attention": {}}
    for dtype in DTYPES:
        x, weights, query, keys = (
            torch.randn(shape).to(getattr(torch, dtype))
            for shape in ((tokens, hidden), (inner, hidden), (1, 9, tokens, 64), (1, 3, tokens, 64))
        )
        seconds["weights"][dtype] = cpu_seconds(lambda x=x, weights=weights: F.linear(x, weights), 20)
        attend = lambda q=query, k=keys: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)  # noqa: E731
        seconds["attention"][dtype] = cpu_seconds(attend, 10)
    return {part: round(taken["float32"] / taken["bfloat16"], 2) for part, taken in seconds.items()}


def products_by_instructions() -> dict[str, dict[str, float]]:
    ratios = {}
    for name, most in INSTRUCTIONS.items():
        os.environ.update({} if most is None else {"ONEDNN_MAX_CPU_ISA": most})  # read when a process first computes
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            ratios[name] = process.submit(products).result()
    os.environ.pop("ONEDNN_MAX_CPU_ISA")
    return ratios


@torch.inference_mode()
def costs(length: int, new_tokens: int, repeats: int) -> dict[str, object]:
    """CPU seconds of prefill and of decoding a token in float32 over those in bfloat16, one prompt, in alternation."""
    loaded = embedded_model()
    ids = needle_prompt(loaded, length)
    settings = build_settings(composed([f"method=[{','.join(DECODED)}]"])["method"], RATIO, None, None)
    needs = reduce(or_, (setting.method.needs for setting in settings))
    models = {name: embedded_model().model.to(getattr(torch, name)) for name in DTYPES}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(repeats + 1):
        taken = {}
        for dtype, model in models.items():
            started = time.process_time()
            state = prefill(model, ids, needs)
            seconds = {"prefill": time.process_time() - started}
            for setting in settings:
                caches = setting.method.compress(state, setting.budget_at(len(ids), len(state.layers), 0))
                started = time.process_time()
                generate(model, caches, state.logits, new_tokens, frozenset())
                seconds[f"decoding {setting.name}"] = time.process_time() - started
            taken[dtype] = seconds
        if number:  # the first round compiles
            rounds.append(taken)
    return {
        "prompt_tokens": len(ids),
        "new_tokens": new_tokens,
        "float32_prefill_cpu_seconds": [round(seconds["float32"]["prefill"], 2) for seconds in rounds],
        "float32_over_bfloat16": {
            part: round(median(seconds["float32"][part] / seconds["bfloat16"][part] for seconds in rounds), 2)
            for part in rounds[0]["float32"]
        },
    }


def records_of(dtype: str, depths: int, folder: str) -> tuple[pd.DataFrame, float]:
    started = time.process_time()
    keys = {"model.dtype": dtype, "benchmark.lengths": list(LENGTHS), "benchmark.depths": f"0 to 100 in {depths}"}
    records = kvbench.run(
        method=list(METHODS), ratio=RATIO, benchmark="niah", model="smollm2-135m", output_dir=folder, **keys
    )
    return records, time.process_time() - started


def scores(depths: int) -> dict[str, object]:
    """By setting: mean digits in both dtypes, their paired difference with its interval, and answers that are equal."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {dtype: records_of(dtype, depths, folder) for dtype in DTYPES}
    indexed = {dtype: records.set_index(["setting", "sample"]) for dtype, (records, _) in runs.items()}
    wide, narrow = (indexed[dtype].sort_index() for dtype in DTYPES)
    rows = {}
    for setting in wide.index.unique("setting"):
        full, half = wide.loc[setting], narrow.loc[setting]
        differences = (half["digits"] - full["digits"]).tolist()
        low, high = paired_interval(half["digits"], full["digits"])
        rows[setting] = {
            "float32": round(full["digits"].mean(), 3),
            "bfloat16": round(half["digits"].mean(), 3),
            "difference": round(sum(differences) / len(differences), 3),
            "interval_95": [round(low, 3), round(high, 3)],
            "equal_answers": int((full["prediction"] == half["prediction"]).sum()),
            "samples_scored_otherwise": sum(difference != 0 for difference in differences),
            "answers_with_a_close_call": {
                "float32": int(full["close_call"].notna().sum()),
                "bfloat16": int(half["close_call"].notna().sum()),
            },
        }
    cpu = {dtype: seconds for dtype, (_, seconds) in runs.items()}
    return {
        "lengths": list(LENGTHS),
        "samples": len(wide.index.unique("sample")),
        "ratio": RATIO,
        "run_cpu_seconds": {dtype: round(seconds, 1) for dtype, seconds in cpu.items()},
        "float32_over_bfloat16": round(cpu["float32"] / cpu["bfloat16"], 2),
        "settings": rows,
    }


def main() -> None:
    options = arguments(__doc__, length=2048, new_tokens=32, repeats=3, depths=11)
    tell(
        {
            "what": "bfloat16 beside float32 on a CPU: CPU seconds, and digits of needles that are found",
            "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "avx512_bf16": torch.cpu._is_avx512_bf16_supported(),
            "amx_bf16": torch.cpu._is_amx_tile_supported(),
            "products_float32_over_bfloat16": products_by_instructions(),
            "costs": costs(options.length, options.new_tokens, options.repeats),
            "scores": scores(options.depths),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
