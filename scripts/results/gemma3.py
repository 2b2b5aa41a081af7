"""Needles in 4k to 16k tokens on Gemma-3-270M, which has sliding windows: `python -m scripts.results.gemma3 [LENGTH…]`.

Every method at one ratio of its three full layers; a run for each length. Table, heatmap and manifest go to
results/gemma3/LENGTH once a length is complete (--out names another folder). Records stay in runs/gemma3, so a stopped
run goes on where it was. docs/models.md says how to install the model.
"""

import argparse
from pathlib import Path

from kvbench.configuration import configured
from kvbench.runner import run as command
from scripts.frame import script_parser, until_stopped
from scripts.results.kept_files import keep

ROOT = Path(__file__).parents[2]
# One preset of each method that takes no file for this model; PyramidInfer refuses sliding windows.
METHODS = (
    "full random streaming_llm h2o tova snapkv pyramidkv cake lava adakv criticalkv_snapkv expected_attention keydiff "
    "knorm lagkv kvzip rkv squeeze simlayerkv pooling_merge quest kivi turboquant_4 fp8_token think_snapkv minicache "
    "spindle"
).split()


def needles(length: int, options: argparse.Namespace) -> None:
    folder = command.run(
        configured(
            [
                "model=gemma3-270m",
                "benchmark=niah_base",
                f"benchmark.lengths=[{length}]",
                f"benchmark.depths={options.depths}",
                "benchmark.max_new_tokens=9",
                f"method=[{','.join(METHODS)}]",
                f"ratio={options.ratio}",
                "output_dir=runs/gemma3",
            ]
        )
    )
    keep(folder, options.out / str(length), ["table.md", "table.csv", "heatmap.png"])


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=[4096, 8192, 16384], metavar="LENGTH")
    parser.add_argument("--depths", default="[10,50,90]", help="per cent, as benchmark.depths")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of the full layers' tokens")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gemma3")
    options = parser.parse_args()
    with until_stopped():
        for length in options.lengths:
            needles(length, options)


if __name__ == "__main__":
    main()
