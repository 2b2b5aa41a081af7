"""How often the intervals of tables and comparisons contain the truth: 1,000 simulated data sets of known truth each.

python -m scripts.benchmarks.measure_interval_coverage [--out results/benchmarks]

The four statistics are those of kvbench: a mean score, a mean over tasks, a mean of samples that share contexts, and a
paired difference over tasks. Scores are of four kinds: found or not, the share of a number's digits, F1 with many
exact zeros and ones, and a continuous one.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kvbench.metrics.bootstrap import clustered, interval, paired_interval
from kvbench.tables.text_table import TextTable
from scripts.frame import script_parser

DATA_SETS = 1000
UNITS = (5, 10, 20, 50, 200)  # of each task
TASKS = 4
SAMPLES = 3  # of each context

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]  # scores of units whose ease is given, in 0 to 1


def found(rng: np.random.Generator, ease: np.ndarray) -> np.ndarray:
    return (rng.random(ease.shape) < 0.3 + 0.6 * ease).astype(float)


def digits(rng: np.random.Generator, ease: np.ndarray) -> np.ndarray:
    return np.where(found(rng, ease) > 0, 1.0, rng.integers(0, 7, ease.shape) / 7)


def f1(rng: np.random.Generator, ease: np.ndarray) -> np.ndarray:
    kind = rng.random(ease.shape)
    return np.where(kind < 0.3, 0.0, np.where(kind < 0.3 + 0.4 * ease, 1.0, rng.beta(2, 2, ease.shape)))


def continuous(rng: np.random.Generator, ease: np.ndarray) -> np.ndarray:
    return rng.beta(2 + 2 * ease, 5)


KINDS: dict[str, Draw] = {"found or not": found, "digits": digits, "F1": f1, "continuous": continuous}


def mean_of(draw: Draw, of: Callable[[np.random.Generator, int], np.ndarray]) -> float:
    """The truth, from a million units."""
    rng = np.random.default_rng(10**6)
    return float(draw(rng, of(rng, 10**6)).mean())


def ease(rng: np.random.Generator, units: int) -> np.ndarray:
    return rng.random(units)


def of_task(task: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, units: (rng.random(units) + task) / TASKS


def mean(draw: Draw, units: int, rng: np.random.Generator) -> tuple[float, float]:
    return interval(draw(rng, ease(rng, units)))


def tasks(draw: Draw, units: int, rng: np.random.Generator) -> tuple[float, float]:
    strata = [draw(rng, of_task(task)(rng, units)) for task in range(TASKS)]
    return clustered(strata, [range(units)] * TASKS)


def contexts(draw: Draw, units: int, rng: np.random.Generator) -> tuple[float, float]:
    labels = np.repeat(np.arange(units), SAMPLES)
    return clustered([draw(rng, ease(rng, units)[labels])], [labels])


def pair(draw: Draw, units: int, rng: np.random.Generator) -> tuple[float, float]:
    """A method that loses a third of the samples' ease, beside FullKV, over two tasks."""
    strata = np.repeat([0, 1], units)
    easy = rng.random(2 * units)
    full = draw(rng, easy)
    lost = draw(rng, easy * 2 / 3)
    kept = np.where(rng.random(2 * units) < 0.7, full, lost)  # most answers stay as they were
    return paired_interval(kept, full, strata.tolist())


def truths(draw: Draw) -> dict[str, float]:
    every = mean_of(draw, ease)
    return {
        "mean": every,
        "tasks": float(np.mean([mean_of(draw, of_task(task)) for task in range(TASKS)])),
        "contexts": every,
        "pair": 0.3 * (mean_of(draw, lambda rng, units: rng.random(units) * 2 / 3) - every),
    }


STATISTICS = {"mean": mean, "tasks": tasks, "contexts": contexts, "pair": pair}
TITLES = {
    "mean": "mean",
    "tasks": f"mean over {TASKS} tasks",
    "contexts": f"mean, {SAMPLES} samples of each context",
    "pair": "paired difference over 2 tasks",
}


def coverage(statistic: str, draw: Draw, truth: float, units: int) -> tuple[float, float]:
    """The share of intervals that contain the truth, and their mean width."""
    rng = np.random.default_rng([units, *statistic.encode()])
    ends = np.array([STATISTICS[statistic](draw, units, rng) for _ in range(DATA_SETS)])
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()), float((ends[:, 1] - ends[:, 0]).mean())


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    out = parser.parse_args().out
    rows = []
    for kind, draw in KINDS.items():
        truth = truths(draw)
        for statistic in STATISTICS:
            for units in UNITS:
                share, width = coverage(statistic, draw, truth[statistic], units)
                rows.append([TITLES[statistic], kind, str(units), f"{100 * share:.1f}", f"{width:.3f}"])
                print(*rows[-1], flush=True)
    header = ["statistic", "scores", "units of a task", "contain the truth (%)", "mean width"]
    out.mkdir(parents=True, exist_ok=True)
    title = f"95 % intervals that contain the truth, of {DATA_SETS:,} simulated data sets each"
    (out / "coverage.md").write_text(TextTable(header, rows, title).markdown())


if __name__ == "__main__":
    main()
