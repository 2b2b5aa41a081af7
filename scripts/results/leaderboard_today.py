"""Formats and methods of today on two models: `python -m scripts.results.leaderboard_today run`, then `… report`.

run     makes the records under --runs (default runs/leaderboard_today): number needles at five depths, each in a text
        of its own, so that all samples are independent. --limit N stops after so many of each part; the same command
        with a larger N continues, and a stopped one goes on where it was. --models and --parts divide it.
report  writes tables, figures and what made them to results/leaderboard/MODEL.

SmolLM2-135M-Instruct: 1,024 tokens, question visible and hidden. Gemma-3-270M, which takes no questions: 4,096, 8,192
and 16,384 tokens, question visible; its shares of bytes are of the layers with full attention, which methods compress
(docs/models.md says how to install it). Both compute in bfloat16, so that bytes are those of a 16-bit cache.
"""

import os
from pathlib import Path
from typing import NamedTuple

from kvbench.configuration import Configuration
from kvbench.runner import run as command
from scripts.frame import script_parser, until_stopped
from scripts.results.leaderboard import at_own_ratios
from scripts.results.leaderboard_tables import Board, report

ROOT = Path(__file__).parents[2]
TARGETS = (0.1, 0.3, 0.5)  # of FullKV's bytes
KNOWN = "full fp8_token kivi turboquant_4".split()  # in the older leaderboard, too
FORMATS = """
    ggml_q8_0 ggml_q5_1 ggml_iq4_nl ggml_q4_0 ggml_q4_0_rotated ggml_q8_0_q4_0 mxfp8 mxfp6 mxfp4 nvfp4
    kvquant_4 kvquant_3 gear_4 gear_2 kvtc_5 kvtc_3 palu xkv
""".split()
EVICTION = """
    snapkv kvzip triattention attention_matching chunkkv compactor cur kvcompose leverage nacl non_causal finch
    key_rerotation
""".split()  # the first two are in the older leaderboard, too
# Ratios of which measured r_bytes come near a target, one of a slow method, and those of methods that store everything.
OTHER = {
    "attention_matching_omp": [0.3],
    "snapkv_nvfp4": [0.35],
    "snapkv_kvquant": [0.34],
    "snapkv_gear": [0.28, 0.83],
    "snapkv_kvtc": [0.6],
    "snapkv_palu": [0.37, 0.75],
    "rocketkv": [0.1],
    "omnikv": [0.3],
}
FREE = ["score_threshold"]  # keeps what it keeps
DEPTHS = "benchmark.depths=[10,30,50,70,90]"


class Part(NamedTuple):
    overrides: list[str]
    without: frozenset[str] = frozenset()  # methods that would take minutes a sample


class Model(NamedTuple):
    board: Board
    parts: dict[str, Part]


CHAT = ["benchmark=niah", DEPTHS, "benchmark.lengths=[1024]", "benchmark.seeds=12", "benchmark.max_new_tokens=20"]
BASE = ["benchmark=niah_base", DEPTHS, "benchmark.max_new_tokens=9", "question=visible"]
MATCHING = frozenset({"attention_matching", "attention_matching_omp"})
MODELS = {
    "smollm2-135m": Model(
        Board("SmolLM2-135M-Instruct, bfloat16, 1,024 tokens", {"visible": "digits", "hidden": "digits"}),
        {question: Part([*CHAT, f"question={question}"]) for question in ("visible", "hidden")},
    ),
    "gemma3-270m": Model(
        Board(
            "Gemma-3-270M, bfloat16; bytes of the layers with full attention",
            {"4k": "digits", "8k": "digits", "16k": "digits"},
            "r_bytes_full",
        ),
        {
            f"{length // 1024}k": Part([*BASE, f"benchmark.lengths=[{length}]", f"benchmark.seeds={seeds}"], without)
            for length, seeds, without in (
                (4096, 6, frozenset({"attention_matching_omp"})),
                (8192, 4, frozenset({"attention_matching_omp"})),
                (16384, 3, MATCHING),
            )
        },
    ),
}


def configuration(model: str, part: Part, limit: int | None) -> Configuration:
    """The configuration of a part, each method at ratios of its own."""
    ratios = {method: list(TARGETS) for method in EVICTION} | OTHER
    methods = [method for method in (*KNOWN, *FORMATS, *ratios, *FREE) if method not in part.without]
    overrides = [f"model={model}", "model.dtype=bfloat16", "decode.batch=all", *part.overrides]
    return at_own_ratios(methods, ratios, [*overrides, f"limit={limit or 'null'}"])


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("do", choices=["run", "report"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="default: both")
    parser.add_argument("--parts", nargs="+", help="of run: visible, hidden; 4k, 8k, 16k; default: all of the model")
    parser.add_argument("--limit", type=int, help="samples of each part; default: all")
    parser.add_argument("--runs", default="runs/leaderboard_today")
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    with until_stopped():
        for name in options.models:
            for part in MODELS[name].parts if options.do == "run" else ():
                if not options.parts or part in options.parts:
                    print(f"== {name}, {part}", flush=True)
                    cfg = configuration(name, MODELS[name].parts[part], options.limit)
                    command.run(cfg.changed(output_dir=f"{options.runs}/{name}/{part}"))
            if options.do == "report":
                report(Path(options.runs) / name, ROOT / "results/leaderboard" / name, TARGETS, MODELS[name].board)


if __name__ == "__main__":
    main()
