"""How many prompts a measure needs to tell two settings apart: the score, or a distance from FullKV?

    python -m scripts.benchmarks.sample_efficiency RUN_FOLDER [--json FILE] [--figure FILE]

RUN_FOLDER holds records made with distance=true. For each method, settings at neighbouring ratios (or budgets) are
paired on the same samples. With d the difference of a measure, a paired two-sided test at 5 % finds a mean difference
of this size with a power of 80 % from n* = 7.85 (sd d / mean d)² samples on (normal approximation).
"""

import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from kvbench.metrics.aggregate import with_distances
from kvbench.records import load
from kvbench.report.figures.style import grid_lines, legend_below, line_styles, new_figure, save
from kvbench.utils.environment import environment, now
from kvbench.utils.files import write_atomically
from scripts.frame import script_parser

NEEDED = (1.959964 + 0.841621) ** 2  # of the normal distribution: 97.5 % and 80 %
LARGEST = 1e5  # samples; differences that would need more are shown there


def measured(folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """A row per record with its measures as columns, and their names: the benchmark's scores, top1 and kl."""
    records = load(folder)
    measures = list(records["scores"].iloc[0])
    records, distances = with_distances(records)
    names = [*measures, *(name for name in ("top1", "kl") if name in distances)]
    values = pd.DataFrame(list(records["scores"]), index=records.index)[names]
    requested = records["ratio"].astype(float).fillna(records["budget"].astype(float))
    return pd.concat(
        [records[["method", "setting", "sample", "r_bytes"]].assign(requested=requested), values], axis=1
    ), names


def needed(differences: pd.Series) -> float:
    """Samples from which on the mean of paired differences is found; inf where there is none."""
    mean, spread = differences.mean(), differences.std()
    return float("inf") if not mean else NEEDED * (spread / mean) ** 2


def pairs(frame: pd.DataFrame, names: list[str]) -> list[dict]:
    """A row per method and two neighbouring settings: samples needed by each measure."""
    rows = []
    for method, of_method in frame.groupby("method", sort=False):
        if of_method["requested"].isna().any():
            continue
        ordered = [rows for _, rows in of_method.groupby("requested")]
        for lower, upper in pairwise(ordered):
            lower, upper = (each.set_index("sample") for each in (lower, upper))
            both = lower.index.intersection(upper.index)
            rows.append(
                {
                    "method": method,
                    "settings": [lower["setting"].iloc[0], upper["setting"].iloc[0]],
                    "samples": len(both),
                    "needed": {name: needed(upper.loc[both, name] - lower.loc[both, name]) for name in names},
                    "difference": {name: (upper.loc[both, name] - lower.loc[both, name]).mean() for name in names},
                }
            )
    return rows


def figure(rows: list[dict], names: list[str], caption: str):
    """A line per pair of settings with the samples that each measure needs, on a logarithmic axis."""
    styles = line_styles(names)
    drawing, body = new_figure(7, 0.28 * len(rows) + 1.2, caption)
    axis = body.subplots()
    for place, row in enumerate(rows):
        shown = {name: min(max(count, 1), LARGEST) for name, count in row["needed"].items()}
        axis.hlines(place, min(shown.values()), max(shown.values()), color="0.8", zorder=1)
        for name, count in shown.items():
            axis.plot(count, place, styles[name]["marker"], color=styles[name]["color"], markersize=6, zorder=2)
    axis.set_yticks(range(len(rows)), [" / ".join(row["settings"]) for row in rows], fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axis.set_xlabel("samples needed to tell the two apart", fontsize=8)
    grid_lines(axis)
    marks = [Line2D([], [], linestyle="none", marker=s["marker"], color=s["color"], label=n) for n, s in styles.items()]
    legend_below(body, marks, drawing.get_figwidth())
    return drawing


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="without suffix: PNG and PDF")
    arguments = parser.parse_args()
    frame, names = measured(arguments.folder)
    rows = pairs(frame, names)
    for row in rows:
        counts = "  ".join(f"{name} {count:9.1f}" for name, count in row["needed"].items())
        print(f"{' / '.join(row['settings']):<40} {counts}")
    medians = {name: float(pd.Series([row["needed"][name] for row in rows]).median()) for name in names}
    print("median:", "  ".join(f"{name} {count:.1f}" for name, count in medians.items()))
    if arguments.json:
        result = {"what": __doc__.splitlines()[0], "run": arguments.folder.name, "median": medians, "rows": rows}
        text = json.dumps(result | {"made": now()} | environment(), indent=2)
        write_atomically(arguments.json, text.replace("Infinity", "null") + "\n")
    if arguments.figure:
        caption = (
            f"{rows[0]['samples']} samples of {arguments.folder.name}; n* = 7.85 (sd / mean)² of paired differences"
        )
        save(figure(rows, names, caption), arguments.figure)


if __name__ == "__main__":
    main()
