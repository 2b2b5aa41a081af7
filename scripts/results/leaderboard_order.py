"""Does a cheap model predict the order of methods on a larger one? `python -m scripts.results.leaderboard_order`.

Compares parts of scripts.results.leaderboard_qwen, whose needles lie in a text of their own each: Spearman's rank
correlation of the scores of all methods that two parts have within a target of bytes, FullKV left out. Its interval
(95 %) draws every score of both parts from its own interval: the furthest that 95 % of the drawn correlations lie from
the correlation, above it and below. Methods were not drawn from anything. Drawn samples alone made intervals too
narrow: what one sample of 80 decides between methods at the floor stays so in all draws.
scripts.benchmarks.measure_order_coverage measures how many of these intervals contain the correlation of the true
scores. `halves` is the mean correlation of a part with itself, between random halves of its samples. Where a part has
several tasks, scores are means over tasks, and samples are halved within each.
Writes order.md, order.csv and order.png to results/leaderboard (--out names another folder).

A part without records below --runs is read from a committed leaderboard.csv; its halves are those of the table before.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kvbench.metrics.aggregate import tasks_of, units
from kvbench.metrics.bootstrap import Interval
from kvbench.records import load
from kvbench.records.identity import FULL
from kvbench.report.figures.style import new_figure, save
from kvbench.report.tables.text_table import MISSING, TextTable
from kvbench.runner.leaderboard.ranks import within
from kvbench.utils.files import write_atomically
from scripts.frame import script_parser
from scripts.results.leaderboard_qwen import FOLDERS, PARTS, TARGETS, board
from scripts.results.leaderboard_tables import begun, complete, settings_of

ROOT = Path(__file__).parents[2]
DRAWS = 1000
OF_95 = 1.96  # standard deviations from the mean to an end of a normal 95 % interval
FEWEST = 8  # samples of a part, and methods of a comparison
DIFFERENCES = ["model", "length", "question", "needles, RULER"]  # of the two parts of a pair, in the order of the table
LEVELS = 5  # different scores of a part's methods: with fewer, nearly all are at the floor and have no order


class Samples(NamedTuple):
    scores: pd.DataFrame  # a column per setting; a row per sample that all settings have
    tasks: np.ndarray  # of the rows


class Part(NamedTuple):
    model: str
    name: str
    settings: pd.DataFrame  # of `settings_of`
    records: Samples | None  # None: a board alone

    @property
    def samples(self) -> int:
        return int(self.settings["samples"].max())

    @property
    def question(self) -> str:
        """visible or hidden; RULER's tasks are a kind of their own."""
        return self.name.partition("_")[0]

    @property
    def length(self) -> str:
        return self.name.split("_")[1]

    @property
    def title(self) -> str:
        return f"{self.model} {self.name.replace('_', ' ')}"


def parts(runs: Path, boards: Path) -> list[Part]:
    """The parts with enough samples, in the order of PARTS: of records in `runs`, or else of a board in `boards`."""
    made = [part for model in PARTS for part in parts_of(model, runs, boards / FOLDERS.get(model, model))]
    return [part for part in made if part.samples >= FEWEST]


def parts_of(model: str, runs: Path, folder: Path) -> Iterator[Part]:
    of_model = board(model, PARTS[model])
    published = pd.concat([pd.DataFrame({"part": []}), *map(pd.read_csv, sorted(folder.rglob("leaderboard.csv")))])
    there = begun(runs / model, of_model)
    for name in of_model.measures:
        if name in there:
            records, measure = load(runs / model / name), of_model.measures[name]
            if records["sample"].nunique() != units(records).nunique():
                raise ValueError(f"samples of {model} {name} share texts")
            whole = complete(records.assign(task=tasks_of(records)), measure)
            scores = whole.pivot(index=["task", "sample"], columns="setting", values="value")
            samples = Samples(scores, scores.index.get_level_values("task").to_numpy())
            yield Part(model, name, settings_of(records, measure), samples)
        elif len(settings := published[published["part"] == name]):
            yield Part(model, name, settings, None)


def methods_within(part: Part, target: float) -> dict[str, str]:
    """The setting of each method within a target of bytes."""
    return within(part.settings, target)["setting"].drop(FULL).to_dict()


def compared(a: Part, b: Part, targets: tuple[float, float]) -> dict[str, Any] | None:
    """A row of the table; None where too few methods are in both, or nearly all of a part's methods score the same."""
    ours, theirs = (methods_within(part, target) for part, target in zip((a, b), targets, strict=True))
    names = [name for name in ours if name in theirs]
    if len(names) < FEWEST:
        return None
    labels = [[of_methods[name] for name in names] for of_methods in (ours, theirs)]
    boards = [part.settings.set_index("setting").loc[of_part] for part, of_part in zip((a, b), labels, strict=True)]
    means = [board["score"].to_numpy() for board in boards]
    if any(len(np.unique(mean.round(9))) < LEVELS for mean in means):
        return None
    rng = np.random.default_rng(0)
    correlation = float(spearman(*means))
    low, high = around(correlation, spearman(*(drawn_scores(rng, board) for board in boards)))
    noise = [halves(rng, part.records, of_part) for part, of_part in zip((a, b), labels, strict=True)]
    apart = sorted(zip(names, *(ranks(mean) for mean in means), strict=True), key=lambda row: row[2] - row[1])
    return {
        "of": a.title,
        "with": b.title,
        "r_bytes of": targets[0],
        "r_bytes with": targets[1],
        "methods": len(names),
        "samples": f"{a.samples}, {b.samples}",
        "correlation": correlation,
        "low": low,
        "high": high,
        "halves": ", ".join(noise),
        "better in the second": apart[-1][0],
        "worse in the second": apart[0][0],
    }


def drawn_scores(rng: np.random.Generator, board: pd.DataFrame) -> np.ndarray:
    """[DRAWS, settings]: scores that the settings' intervals allow, normal on either side of the score."""
    score, low, high = (board[column].to_numpy() for column in ("score", "low", "high"))
    noise = rng.standard_normal((DRAWS, len(board)))
    return score + noise / OF_95 * np.where(noise > 0, high - score, score - low)


def around(correlation: float, drawn: np.ndarray) -> Interval:
    """As far above and below the correlation as 95 % of the drawn ones lie from it."""
    furthest = float(np.quantile(np.abs(drawn - correlation), 0.95))
    return Interval(max(correlation - furthest, -1.0), min(correlation + furthest, 1.0))


def weights(tasks: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
    """The weights of rows in a mean over tasks of their rows' weighted means; they add up to 1."""
    members = tasks[:, None] == np.unique(tasks)
    return of_rows / (members @ (of_rows @ members)) / members.shape[1]


def halves(rng: np.random.Generator, samples: Samples | None, settings: list[str], times: int = 200) -> str:
    """The mean correlation between two random halves of the rows, each with half of every task's."""
    if samples is None:
        return MISSING
    scores, tasks = samples.scores[settings].to_numpy(), samples.tasks
    correlations = []
    for _ in range(times):
        order = rng.permutation(len(scores))
        of_tasks = [order[tasks[order] == task] for task in np.unique(tasks)]
        first = np.zeros(len(scores))
        first[np.concatenate([rows[: len(rows) // 2] for rows in of_tasks])] = 1
        correlations.append(spearman(*(weights(tasks, half) @ scores for half in (first, 1 - first))))
    return f"{np.nanmean(correlations):.2f}"


def ranks(values: np.ndarray) -> np.ndarray:
    """Along the last axis, 1 for the lowest; equal values share the mean of their ranks."""
    return pd.DataFrame(np.atleast_2d(values)).round(9).rank(axis=1).to_numpy().reshape(values.shape)


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Along the last axis; nan where all values are equal."""
    x, y = (of_part - of_part.mean(axis=-1, keepdims=True) for of_part in (ranks(a), ranks(b)))
    with np.errstate(invalid="ignore"):
        return np.asarray((x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1)))


def rows(parts_in_order: list[Part]) -> list[dict[str, Any]]:
    """Pairs of parts at equal shares of bytes; of two models, the first also at the next larger."""
    equal, larger = [*zip(TARGETS, TARGETS, strict=True)], [*zip(TARGETS[1:], TARGETS, strict=False)]
    made = []
    for a, b in pairs(parts_in_order):
        made += [compared(a, b, targets) for targets in (equal if a.model == b.model else equal + larger)]
    return [row for row in made if row]


def pairs(parts_in_order: list[Part]) -> Iterator[tuple[Part, Part]]:
    """Parts that differ in their model, question or length alone; models whose lengths differ, at their first."""
    first = {(part.model, part.question): part.length for part in reversed(parts_in_order)}
    for a, b in combinations(parts_in_order, 2):
        if a.model == b.model:
            alike = (a.question == b.question) != (a.length == b.length)
        else:
            alike = a.question == b.question and all(part.length == first[part.model, part.question] for part in (a, b))
        if alike:
            yield a, b


def with_earlier_halves(file: Path, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the halves of the table before where a part's records are missing, of as many samples."""
    key = ("of", "with", "r_bytes of", "r_bytes with", "methods", "samples")
    before = pd.read_csv(file).to_dict("records") if file.exists() else []
    known = {tuple(row[name] for name in key): row["halves"].split(", ") for row in before}
    rows = []
    for row in made:
        halves = row["halves"].split(", ")
        of_before = known.get(tuple(row[name] for name in key), halves)
        kept = [old if new == MISSING else new for new, old in zip(halves, of_before, strict=True)]
        rows.append({**row, "halves": ", ".join(kept)})
    return rows


def table(made: list[dict[str, Any]]) -> TextTable:
    header = ["of", "with", "r_bytes", "methods", "samples", "rank correlation", "halves"]
    header += ["gains most ranks", "loses most ranks"]
    cells = [
        [
            *(row[key] for key in ("of", "with")),
            f"{row['r_bytes of']:g}, {row['r_bytes with']:g}",
            *(str(row[key]) for key in ("methods", "samples")),
            f"{row['correlation']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" if row["low"] == row["low"] else MISSING,
            *(str(row[key]) for key in ("halves", "better in the second", "worse in the second")),
        ]
        for row in made
    ]
    return TextTable(header, cells, "Rank correlation of methods between models, questions and shares of bytes")


def difference(row: dict[str, Any]) -> str:
    """Of DIFFERENCES, the first that the two parts of a row have."""
    (model, question, *_), (other_model, other_question, *_) = (row[part].split() for part in ("of", "with"))
    differs = [model != other_model, question == other_question, "ruler" not in (question, other_question), True]
    return DIFFERENCES[differs.index(True)]


def figure(made: list[dict[str, Any]]) -> Figure:
    """A row per pair of parts, a point per share of bytes with its interval, a colour per difference."""
    equal = [row for row in made if row["r_bytes of"] == row["r_bytes with"]]
    titles = list(dict.fromkeys((row["of"], row["with"]) for row in equal))
    colours = {name: f"C{number}" for number, name in enumerate(dict.fromkeys(map(difference, equal)))}
    caption = "95 % intervals; the numbers are r_bytes, at most, of both parts"
    drawing, body = new_figure(8, 1.2 + 0.8 * len(titles), caption)
    axis = body.subplots()
    for row in equal:
        share = TARGETS.index(row["r_bytes of"])
        y = titles.index((row["of"], row["with"])) + (share - (len(TARGETS) - 1) / 2) * 0.14
        axis.plot([row["low"], row["high"]], [y, y], color="0.6", linewidth=1.2)
        axis.plot(row["correlation"], y, "o", color=colours[difference(row)], markersize=4)
        axis.annotate(
            f"{row['r_bytes of']:g}", (row["high"], y), (5, 0), textcoords="offset points", size=6, va="center"
        )
    axis.set_yticks(range(len(titles)), ["\nand ".join(pair) for pair in titles], fontsize=7)
    axis.set_xlabel("rank correlation of the methods' scores (Spearman)", fontsize=8)
    axis.set_xlim(min(0, *(row["low"] for row in equal)), 1.08)
    axis.set_ylim(len(titles) - 0.5, -0.5)
    axis.grid(axis="x", alpha=0.3)
    handles = [axis.plot([], [], "o", color=colour, markersize=4, label=name)[0] for name, colour in colours.items()]
    axis.legend(handles=handles, title="differ in", fontsize=7, title_fontsize=7, loc="lower left")
    return drawing


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "leaderboard_qwen")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "leaderboard")
    options = parser.parse_args()
    made = rows(parts(options.runs, ROOT / "results" / "leaderboard"))
    if not made:
        raise SystemExit(f"{options.runs} has no two parts with {FEWEST} samples and methods in common")
    made = with_earlier_halves(options.out / "order.csv", made)
    made.sort(key=lambda row: DIFFERENCES.index(difference(row)))
    write_atomically(options.out / "order.md", table(made).markdown())
    pd.DataFrame(made).round(4).to_csv(options.out / "order.csv", index=False)
    save(figure(made), options.out / "order")
    print(table(made).markdown())


if __name__ == "__main__":
    main()
