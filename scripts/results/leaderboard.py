"""All methods at equal r_bytes on the embedded model: `python -m scripts.results.leaderboard run`, then `… report`.

run     makes the records under --runs (default runs/leaderboard): 202 number needles with the question visible and
        hidden, and RULER's tasks. --limit N stops after so many needles of each grid; the same command with a larger N
        continues, and a stopped one goes on where it was. --shard 0 --shards 2 makes one half, for two processes.
report  writes tables, figures and what made them to results/leaderboard from the records that are there.

The model computes in bfloat16, so that shares of bytes are those of a 16-bit cache. DuoAttention and HeadKV read
results/leaderboard/retrieval_scores.json, which `kvbench calibrate` made from other needles.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.configuration import Configuration, configured
from kvbench.runner import run as command
from scripts.frame import script_parser, until_stopped
from scripts.results.leaderboard_tables import Board, report

ROOT = Path(__file__).parents[2]
TARGETS = (0.1, 0.2, 0.3, 0.5)  # of FullKV's bytes
EVICTION = """
    random streaming_llm knorm keydiff lagkv tova h2o snapkv pyramidkv pyramidinfer simlayerkv squeeze pooling_merge
    cake lava adakv headkv duo_attention criticalkv_snapkv ada_criticalkv_snapkv expected_attention
    criticalkv_expected_attention kvzip kvzip_uniform spindle
""".split()
# Methods that quantise, or hold more than the kept tokens: ratios of which measured r_bytes come near the targets.
OTHER = {
    "rkv": [0.09, 0.19, 0.29, 0.49],
    "snapkv_fp8": [0.2, 0.4, 0.6, 1.0],
    "snapkv_kivi4": [0.15, 0.46, 0.75],
    "think_snapkv": [0.118, 0.243, 0.37, 0.62],
    "quest": [0.1, 0.3],  # reads less, stores everything: ranked nowhere
}
FIXED = "full kivi kivi_k4v2 kivi_longbench_2bit fp8_token turboquant_2 turboquant_3 turboquant_4 minicache".split()
BOARD = Board("smollm2-135m, bfloat16", {"needles_visible": "digits", "needles_hidden": "digits", "ruler": "score"})
SCORES = "results/leaderboard/retrieval_scores.json"
OVERRIDES = [
    # a 16-bit cache; all settings of a sample in one batch
    *("model.dtype=bfloat16", "decode.batch=all"),
    # SpindleKV: a selection per KV head, and the search on bytes; SimLayerKV: windows that bind at these lengths
    *("method.spindle.repeat=false", "method.spindle.control_on=r_bytes"),
    *("method.simlayerkv.delta=null", "method.simlayerkv.window=128"),
    *(f"method.headkv.heads.scores_file={SCORES}", f"method.duo_attention.gates_file={SCORES}"),
    *("method.duo_attention.sinks=4", "method.duo_attention.recent=64"),
]
# Depths are every 12.5 % of the text. The grid with 2,048 tokens takes most of the time, so it has fewer texts.
NEEDLES = {
    "1k and 2k": (["benchmark.lengths=[1024,2048]", "benchmark.depths=[0,25,50,75,100]", "benchmark.seeds=20"], 70),
    "1k": (["benchmark.lengths=[1024]", "benchmark.depths=[12.5,37.5,62.5,87.5]", "benchmark.seeds=33"], 132),
}
RULER = ["benchmark.lengths=[1024]", "benchmark.tasks=[niah_single_1,niah_single_2,niah_multikey_1]"]
PARTS = {
    "needles_visible": {
        name: ([*grid, "benchmark=niah_multi", "question=visible"], limit) for name, (grid, limit) in NEEDLES.items()
    },
    "needles_hidden": {
        name: ([*grid, "benchmark=niah_multi", "question=hidden"], limit) for name, (grid, limit) in NEEDLES.items()
    },
    "ruler": {"1k": ([*RULER, "benchmark=ruler", "question=visible", "benchmark.num_samples=20"], 20)},  # of each task
}


def configuration(grid: list[str], limit: int) -> Configuration:
    """The configuration of one grid of a part, each method at ratios of its own."""
    names = [*FIXED, *EVICTION, *OTHER]
    ratios = {name: list(TARGETS) for name in EVICTION} | OTHER
    return at_own_ratios(names, ratios, [*OVERRIDES, *grid, f"limit={limit}"])


def at_own_ratios(names: Sequence[str], ratios: Mapping[str, list[float]], overrides: Sequence[str]) -> Configuration:
    """The configuration of methods, those in `ratios` at ratios of their own."""
    cfg = configured([f"method=[{','.join(names)}]", *overrides])
    entries = {name: {**cfg.method[name], "ratio": ratios[name]} for name in names if name in ratios}
    return cfg.changed(method={**cfg.method, **entries})


def run(parts: list[str], most: int | None, runs: str, shard: int, shards: int) -> None:
    for part in parts:
        for name, (grid, limit) in PARTS[part].items():
            print(f"== {part}, {name}", flush=True)
            cfg = configuration(grid, limit if most is None else min(limit, most))
            command.run(cfg.changed(output_dir=f"{runs}/{part}", shard=shard, shards=shards))


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("do", choices=["run", "report"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="of run; default: all")
    parser.add_argument("--limit", type=int, help="samples of each grid or task; default: all")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--runs", default="runs/leaderboard")
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    with until_stopped():
        if options.do == "run":
            run(options.parts, options.limit, options.runs, options.shard, options.shards)
        else:
            report(Path(options.runs), ROOT / "results/leaderboard", TARGETS, BOARD)


if __name__ == "__main__":
    main()
