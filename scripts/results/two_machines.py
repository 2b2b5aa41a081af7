"""Answers that two machines gave to the same samples under the same settings: do they say the same of the methods?

    python -m scripts.results.two_machines results/community/qwen2.5-coder-1.5b/ruler-4k results/gpu/nvidia-h200-ruler

takes runs or packs of them, and writes machines.md and machines.csv to the second folder (or --out): for each setting
the mean scores on both machines over the samples that both have, the mean difference with its 95 % interval (paired;
texts are drawn, tasks have equal weight), and the share of answers that are equal to the last character.
"""

from pathlib import Path

import pandas as pd

from kvbench.metrics.aggregate import tasks_of, units
from kvbench.metrics.bootstrap import OF_SCORES, paired_interval
from kvbench.records import load
from kvbench.report.tables.text_table import TextTable
from kvbench.utils.files import write_atomically
from scripts.frame import script_parser
from scripts.results.leaderboard_order import ranks

SAME = ["sample", "setting"]  # of a pair of records


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("first", type=Path, help="a run, or a pack of one")
    parser.add_argument("second", type=Path)
    parser.add_argument("--score", default="score", help="among the records' scores")
    parser.add_argument("--out", type=Path, help="default: the second folder")
    options = parser.parse_args()
    both = pairs(load(options.first), load(options.second), options.score)
    table = pd.DataFrame([compared(setting, of) for setting, of in both.groupby("setting")])
    table = table.sort_values("second", ascending=False, ignore_index=True)
    out = options.out or options.second
    write_atomically(out / "machines.csv", table.to_csv(index=False))
    write_atomically(out / "machines.md", f"{summary(both, table)}\n\n{as_text(table).markdown()}\n")
    print(out / "machines.md")


def pairs(first: pd.DataFrame, second: pd.DataFrame, score: str) -> pd.DataFrame:
    """One row for each sample and setting of both: answers and scores, and the sample's task and text."""
    sides = [
        records.assign(score=[scores[score] for scores in records["scores"]])[[*SAME, "prediction", "score"]]
        for records in (first, second)
    ]
    about = first.assign(task=tasks_of(first), unit=units(first))[[*SAME, "task", "unit"]]
    return sides[0].merge(sides[1], on=SAME, suffixes=("_first", "_second")).merge(about, on=SAME)


def compared(setting: str, both: pd.DataFrame) -> dict[str, object]:
    scores = [both[name].to_numpy() for name in ("score_first", "score_second")]
    low, high = paired_interval(scores[1], scores[0], [*both["task"]], [*both["unit"]], OF_SCORES)
    means = both.groupby("task")[["score_first", "score_second"]].mean().mean()
    return {
        "setting": setting,
        "samples": len(both),
        "first": means["score_first"],
        "second": means["score_second"],
        "difference": means["score_second"] - means["score_first"],
        "low": low,
        "high": high,
        "equal": (both["prediction_first"] == both["prediction_second"]).mean(),
    }


def summary(both: pd.DataFrame, table: pd.DataFrame) -> str:
    texts = (both["prediction_first"] == both["prediction_second"]).sum()
    scores = (both["score_first"] == both["score_second"]).sum()
    apart = table[(table["low"] > 0) | (table["high"] < 0)]["setting"]
    order = table[["first", "second"]].apply(ranks).corr().loc["first", "second"]  # Spearman's
    return (
        f"Of {len(both):,} pairs of records (a sample under a setting), {texts:,} have the same answer and {scores:,} "
        f"the same score. Spearman's correlation of the {len(table)} settings' means: {order:.3f}. Settings whose "
        f"interval of the difference excludes 0: {', '.join(apart) or 'none'}."
    )


def as_text(table: pd.DataFrame) -> TextTable:
    rows = [
        [
            row.setting,
            str(row.samples),
            f"{row.first:.3f}",
            f"{row.second:.3f}",
            f"{row.difference:+.3f} [{row.low:+.3f}, {row.high:+.3f}]",
            f"{row.equal:.0%}",
        ]
        for row in table.itertuples()
    ]
    return TextTable(["setting", "samples", "first", "second", "difference (95 %)", "equal answers"], rows)


if __name__ == "__main__":
    main()
