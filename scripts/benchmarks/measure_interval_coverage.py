"""How often the intervals of tables and comparisons contain the truth: 1,000 simulated data sets of known truth each.

python -m scripts.benchmarks.measure_interval_coverage [--out results/benchmarks]

Means are of one task, over four tasks, of texts with one to five questions each, and over four tasks about the same
texts. Paired differences are of settings that differ in 0.5 to 30 % of the answers: of one task, over four tasks that
change unequally, of texts with one to five questions, which change together, over four tasks about the same texts, of
which a text changes all or none, and of texts with a few or with very many questions, all or none of which change.
Divergences have no upper bound, and vary between texts by 0.3, 1 or 2 times their mean: on 40 essays, those of formats
do by 0.3 to 0.7, of evictions at a quarter of the bytes by 0.3 to 1.3, and of slighter ones by 2.4 at most.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvbench.metrics.bootstrap import Interval, clustered, paired_interval
from kvbench.report.tables.text_table import TextTable
from scripts.frame import script_parser

DATA_SETS = 1000
UNITS = (5, 10, 20, 50, 100, 200)  # of each task
TASKS = 4
MOST = 5  # questions about a text
CHANGED = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3)  # shares of the answers

Random = np.random.Generator
Draw = Callable[[Random, np.ndarray], np.ndarray]  # scores of units whose ease is given, in 0 to 1
Change = Callable[[Random, int], np.ndarray]  # differences of answers that changed


def hits(share: float) -> Draw:
    """Scores of 0 and 1, of which the harder half has a little less than `share` and the easier one a little more."""
    spread = min(share, 1 - share) / 2
    return lambda rng, ease: (rng.random(ease.shape) < share + spread * (2 * ease - 1)).astype(float)


def digits(rng: Random, ease: np.ndarray) -> np.ndarray:
    return np.where(rng.random(ease.shape) < 0.3 + 0.6 * ease, 1.0, rng.integers(0, 10, ease.shape) / 10)


def f1(rng: Random, ease: np.ndarray) -> np.ndarray:
    kind = rng.random(ease.shape)
    return np.where(kind < 0.3, 0.0, np.where(kind < 0.3 + 0.4 * ease, 1.0, rng.beta(2, 2, ease.shape)))


def rouge(rng: Random, ease: np.ndarray) -> np.ndarray:
    """Near 0 in most cases, and 0 or 1 in none."""
    return rng.beta(0.3 + 0.2 * ease, 3)


def continuous(rng: Random, ease: np.ndarray) -> np.ndarray:
    return rng.beta(2 + 2 * ease, 5)


SCORES: Mapping[str, Draw] = {
    **{f"found or not, {share:.0%} found": hits(share) for share in (0.5, 0.9, 0.95, 0.98)},
    "digits": digits,
    "F1": f1,
    "ROUGE": rouge,
    "continuous": continuous,
}
DIFFERENCES: Mapping[str, Change] = {
    "lost": lambda rng, n: np.full(n, -1.0),
    "lost or found": lambda rng, n: rng.choice([-1.0, 1.0], n, p=[0.6, 0.4]),
    "digits": lambda rng, n: rng.choice([-1, -0.5, -0.2, -0.1, 0.3], n, p=[0.1, 0.2, 0.2, 0.3, 0.2]),
    "always -0.3": lambda rng, n: np.full(n, -0.3),
    "F1": lambda rng, n: rng.choice([-1.0, -1.0, 1.0], n) * rng.beta(0.5, 1.5, n),
    "slight": lambda rng, n: rng.normal(-0.02, 0.05, n).clip(-1, 1),
}
SPREADS = (0.3, 1.0, 2.0)  # standard deviations of divergences, in means
NON_NEGATIVE = Interval(0.0, np.inf)
LARGE = 10**6


def mean(draw: Draw, units: int, rng: Random) -> Interval:
    return clustered([draw(rng, rng.random(units))], [range(units)])


def of_task(rng: Random, task: int, units: int) -> np.ndarray:
    return (rng.random(units) + task) / TASKS


def tasks(draw: Draw, units: int, rng: Random) -> Interval:
    labels = [[f"{unit} of task {task}" for unit in range(units)] for task in range(TASKS)]
    return clustered([draw(rng, of_task(rng, task, units)) for task in range(TASKS)], labels)


def tasks_of_texts(draw: Draw, units: int, rng: Random) -> Interval:
    """A text has one score in all tasks."""
    return clustered([draw(rng, rng.random(units))] * TASKS, [range(units)] * TASKS)


def texts(draw: Draw, units: int, rng: Random) -> Interval:
    labels = questions(rng, units)
    return clustered([draw(rng, rng.random(units)[labels])], [labels])


def questions(rng: Random, units: int) -> np.ndarray:
    """A text's number for each question: one to MOST questions a text."""
    return np.repeat(np.arange(units), rng.integers(1, MOST + 1, units))


def pairs(change: Change, share: float, units: int, rng: Random) -> Interval:
    return beside(np.where(rng.random(units) < share, change(rng, units), 0.0))


def texts_in_pairs(change: Change, share: float, units: int, rng: Random) -> Interval:
    """Half of the questions change about a text of which any does."""
    labels = questions(rng, units)
    touched = rng.random(units)[labels] < 2 * share
    changed = touched & (rng.random(len(labels)) < 0.5)
    return beside(np.where(changed, change(rng, len(labels)), 0.0), labels.tolist())


def long_texts_in_pairs(change: Change, share: float, units: int, rng: Random) -> Interval:
    """Numbers of questions have a long tail: of 50 texts the largest has a fifth of them in the median."""
    labels = np.repeat(np.arange(units), np.ceil(rng.lognormal(1, 1.5, units)).astype(int))
    changed = np.where(rng.random(units) < share, change(rng, units), 0.0)
    return beside(changed[labels], labels.tolist())


def tasks_in_pairs(change: Change, share: float, units: int, rng: Random) -> Interval:
    """One task changes as much as two others together, and the fourth does not."""
    shares = np.repeat(np.array([2, 1, 1, 0]) * share, units)
    changed = rng.random(TASKS * units) < shares
    strata = np.repeat(np.arange(TASKS), units).tolist()
    return beside(np.where(changed, change(rng, TASKS * units), 0.0), strata=strata)


def tasks_of_texts_in_pairs(change: Change, share: float, units: int, rng: Random) -> Interval:
    changed = np.where(rng.random(units) < share, change(rng, units), 0.0)
    strata = np.repeat(np.arange(TASKS), units).tolist()
    return beside(np.tile(changed, TASKS), list(range(units)) * TASKS, strata)


def beside(
    differences: np.ndarray, labels: Sequence[int] | None = None, strata: Sequence[int] | None = None
) -> Interval:
    """The interval of these differences, of answers that are half right where they are equal."""
    return paired_interval((1 + differences) / 2, (1 - differences) / 2, strata, labels)


def divergences(rng: Random, spread: float, units: int) -> np.ndarray:
    """Of a lognormal distribution whose mean is 1."""
    variance = np.log1p(spread**2)
    return rng.lognormal(-variance / 2, np.sqrt(variance), units)


def mean_divergence(spread: float, units: int, rng: Random) -> Interval:
    return clustered([divergences(rng, spread, units)], [range(units)], NON_NEGATIVE)


def divergence_of_tasks(spread: float, units: int, rng: Random) -> Interval:
    labels = np.arange(TASKS * units).reshape(TASKS, units).tolist()
    return clustered([divergences(rng, spread, units) for _ in range(TASKS)], labels, NON_NEGATIVE)


def divergences_in_pairs(spread: float, units: int, rng: Random) -> Interval:
    """A text on which one setting diverges much is one on which the other does, half as much in the mean."""
    texts = divergences(rng, spread, units)
    one, other = (texts * divergences(rng, 0.3, units) for _ in range(2))
    return paired_interval(one, other / 2, bounds=NON_NEGATIVE)


class Case(NamedTuple):
    statistic: str
    kind: str
    truth: float
    simulate: Callable[[int, Random], Interval]


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(LARGE)
    for kind, draw in SCORES.items():
        truth = float(draw(rng, rng.random(LARGE)).mean())
        of_tasks = float(np.mean([draw(rng, of_task(rng, task, LARGE)).mean() for task in range(TASKS)]))
        for title, known, statistic in (
            ("mean", truth, mean),
            (f"mean over {TASKS} tasks", of_tasks, tasks),
            (f"mean, texts with 1 to {MOST} questions", truth, texts),
            (f"mean over {TASKS} tasks about the same texts", truth, tasks_of_texts),
        ):
            yield Case(title, kind, known, partial(statistic, draw))
    for kind, change in DIFFERENCES.items():
        size = float(change(rng, LARGE).mean())
        for share in CHANGED:
            for title, difference in (
                ("paired difference", pairs),
                (f"paired difference over {TASKS} tasks", tasks_in_pairs),
                (f"paired difference, texts with 1 to {MOST} questions", texts_in_pairs),
                (f"paired difference over {TASKS} tasks about the same texts", tasks_of_texts_in_pairs),
            ):
                yield Case(title, f"{kind}, {share:.1%} changed", share * size, partial(difference, change, share))
    for spread in SPREADS:
        for title, known, simulated in (
            ("mean", 1.0, mean_divergence),
            (f"mean over {TASKS} tasks", 1.0, divergence_of_tasks),
            ("paired difference", 0.5, divergences_in_pairs),
        ):
            yield Case(title, f"divergences, spread {spread:g}", known, partial(simulated, spread))
    lost = DIFFERENCES["lost"]
    for share in CHANGED:
        simulate = partial(long_texts_in_pairs, lost, share)
        yield Case(
            "paired difference, texts with a few or very many questions", f"lost, {share:.1%} changed", -share, simulate
        )


class Coverage(NamedTuple):
    share: float  # of the intervals that contain the truth
    width: float  # mean


def coverage(case: Case, units: int, data_sets: int = DATA_SETS) -> Coverage:
    rng = np.random.default_rng([units, *f"{case.statistic}{case.kind}".encode()])
    ends = np.array([case.simulate(units, rng) for _ in range(data_sets)])
    inside = (ends[:, 0] <= case.truth) & (case.truth <= ends[:, 1])
    return Coverage(float(inside.mean()), float((ends[:, 1] - ends[:, 0]).mean()))


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    out = parser.parse_args().out
    rows = []
    for case in sorted(cases(), key=lambda case: case.statistic):
        measured = [coverage(case, units) for units in UNITS]
        rows.append(
            [case.statistic, case.kind, *(f"{100 * result.share:.1f} ({result.width:.3f})" for result in measured)]
        )
        print(*rows[-1], flush=True)
    header = ["statistic", "scores", *(f"n = {units}" for units in UNITS)]
    title = (
        f"95 % intervals that contain the truth (%), of {DATA_SETS:,} simulated data sets each, and in parentheses "
        "their mean width; n units of a task"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "coverage.md").write_text(TextTable(header, rows, title).markdown())


if __name__ == "__main__":
    main()
