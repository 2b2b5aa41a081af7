"""How often an interval of a rank correlation between two boards contains that of the methods' true scores.

python -m scripts.benchmarks.measure_order_coverage [--out results/benchmarks]

Simulated boards of 14 methods, whose scores are found or not, some in part; methods find the same samples more often
than by chance, as samples are easy or hard for all. True scores are spread from 0 to 1, or all but four methods are at
the floor, or most are near 1; those of the second board are others of the same kind, or nearly the first board's.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from torch import tensor
from torch.special import ndtri

from kvbench.metrics.bootstrap import clustered
from kvbench.report.tables.text_table import TextTable
from scripts.frame import script_parser
from scripts.results.leaderboard_order import Part, compared, spearman

METHODS = 14
SAMPLES = ((11, 84), (40, 20), (84, 40), (320, 80))  # of the two boards
SHARED = 0.6  # correlation of methods on a sample
PARTLY = 0.3  # of the scores above 0, those that are no full ones

Random = np.random.Generator

KINDS: dict[str, Callable[[Random], np.ndarray]] = {
    "spread": lambda rng: rng.uniform(0.02, 1, METHODS),
    "most at the floor": lambda rng: np.append([0.99, 0.58, 0.49, 0.14], rng.uniform(0.005, 0.06, METHODS - 4)),
    "most near 1": lambda rng: np.append(rng.uniform(0.9, 1, METHODS - 5), rng.uniform(0.1, 0.9, 5)),
}


class Case(NamedTuple):
    kind: str
    alike: bool  # whether the second board's true scores are nearly the first's


def found(rng: Random, shares: np.ndarray, samples: int) -> np.ndarray:
    """[samples, methods]: scores of methods that find these shares of the samples."""
    ease, own = rng.standard_normal((samples, 1)), rng.standard_normal((samples, len(shares)))
    threshold = ndtri(tensor(shares)).numpy()
    hits = SHARED**0.5 * ease + (1 - SHARED) ** 0.5 * own < threshold
    part = rng.random(hits.shape) < PARTLY
    return np.where(hits, np.where(part, rng.integers(1, 7, hits.shape) / 7, 1.0), 0.0)


def true_scores(shares: np.ndarray) -> np.ndarray:
    return shares * (1 - PARTLY / 2)


def board(name: str, scores: np.ndarray) -> Part:
    labels = [f"m{number}" for number in range(scores.shape[1])]
    intervals = [clustered([column.tolist()], [list(range(len(column)))]) for column in scores.T]
    settings = pd.DataFrame(intervals, columns=["low", "high"]).assign(
        method=labels, setting=labels, r_bytes=0.1, samples=len(scores), score=scores.mean(axis=0)
    )
    full = {"method": "full", "setting": "full", "r_bytes": 1, "samples": len(scores), "score": 1, "low": 1, "high": 1}
    return Part(name, "visible_4k", pd.concat([settings, pd.DataFrame([full])], ignore_index=True), None)


def contained(case: Case, samples: tuple[int, int], rng: Random) -> bool | None:
    """Of one data set; None where too few different scores make no row."""
    first = KINDS[case.kind](rng)
    second = np.clip(first * rng.uniform(0.7, 1.3, METHODS), 0.001, 0.999) if case.alike else KINDS[case.kind](rng)
    boards = [board(name, found(rng, s, n)) for name, s, n in zip("ab", (first, second), samples, strict=True)]
    row = compared(boards[0], boards[1], (0.1, 0.1))
    return None if row is None else bool(row["low"] <= spearman(true_scores(first), true_scores(second)) <= row["high"])


def cells(case: Case, data_sets: int) -> Iterator[str]:
    for samples in SAMPLES:
        rng = np.random.default_rng(0)
        made = [inside for _ in range(data_sets) if (inside := contained(case, samples, rng)) is not None]
        yield f"{100 * np.mean(made):.0f}" if made else "–"


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--data-sets", type=int, default=100, help="of each cell; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "results" / "benchmarks")
    options = parser.parse_args()
    cases = [Case(kind, alike) for alike in (False, True) for kind in KINDS]
    rows = [
        [case.kind, "nearly the first's" if case.alike else "others", *cells(case, options.data_sets)] for case in cases
    ]
    header = ["true scores", "of the second board", *(f"{a} and {b} samples" for a, b in SAMPLES)]
    title = (
        f"Per cent of {options.data_sets} simulated pairs of boards whose interval contains the true rank correlation"
    )
    (options.out / "order_coverage.md").write_text(TextTable(header, rows, title).markdown())


if __name__ == "__main__":
    main()
