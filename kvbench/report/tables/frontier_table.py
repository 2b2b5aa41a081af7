"""The frontiers of several methods as a table, and a recommendation in one sentence."""

from collections.abc import Iterable, Mapping
from math import isnan
from pathlib import Path

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.bootstrap import EQUAL, equal_pairs_needed
from kvbench.metrics.frontier import Frontier, Point
from kvbench.report.tables.text_table import MISSING, TextTable, as_text, number
from kvbench.utils.csv_files import write_csv
from kvbench.utils.files import write_atomically

NOTES = {
    "end": "≤ the smallest ratio tried: fewer bytes may do, too",
    "gap": "§ quality does not fall steadily with the bytes: a setting with fewer bytes holds again",
    "floor": "no method can go below {floor}: the windows and states of the other layers, to which ratios do not apply",
    "none": f"{MISSING} not even the setting with the most bytes holds",
}
# Behind a recommendation: the best of several is likelier to be one whose bound is too good.
CHOSEN = " It is the best of {methods} methods by these samples, which favours a lucky one: confirm it on others."


def frontier_table(
    frontiers: Mapping[str, Frontier], full: float, title: str, floor: float | None = None, about: str | None = None
) -> TextTable:
    """One row per method, the fewest bytes first; `full` is FullKV's score in [0, 1].

    floor   the r_bytes of the layers that no method compresses; None: there are none.
    about   a note on the bytes, where plain r_bytes would mislead.
    """
    rows = [
        [
            titled(name),
            _bytes(frontier, frontier.sure) + "§" * frontier.gap,
            _bytes(frontier, frontier.possible),
            MISSING if frontier.sure is None or not _takes_ratio(frontier) else f"{frontier.sure.ratio:g}",
            MISSING if frontier.sure is None else f"{full + frontier.sure.difference:.3f}",
            str(len(frontier.points)),
        ]
        for name, frontier in ordered(frontiers)
    ]
    notes = [
        "held: the smallest share of FullKV's bytes at which, and above which, less than the margin is lost with 95 % "
        "confidence; possible: the smallest not yet ruled out"
    ]
    notes += [about] if about else []
    if floor is not None:
        notes.append(NOTES["floor"].format(floor=number(floor)))
    notes += [NOTES["end"]] * any("≤" in cell for row in rows for cell in row[1:3])
    notes += [NOTES["gap"]] * any(frontier.gap for frontier in frontiers.values())
    notes += [NOTES["none"]] * any(frontier.sure is None for frontier in frontiers.values())
    return TextTable(["method", "held", "possible", "ratio", "score there", "settings"], rows, title, notes)


def ordered(frontiers: Mapping[str, Frontier]) -> list[tuple[str, Frontier]]:
    """The methods with the fewest bytes first; those without a frontier last."""
    return sorted(frontiers.items(), key=lambda item: (item[1].sure is None, item[1].sure and item[1].sure.bytes))


def recommendation(frontiers: Mapping[str, Frontier], full: float, quality: float, measure: str, samples: str) -> str:
    """The method with the fewest bytes, those with as few, and those that the data cannot distinguish from it; of
    several methods also that the samples that chose the best one favour it: each method's bound holds with 95 %
    confidence, that of the best of 13 with less.

    full     FullKV's score in [0, 1]
    samples  their number in words
    """
    kept = f"{100 * quality:g} % of FullKV's {measure}"
    (name, best), *others = ordered(frontiers)
    if full <= EQUAL:
        shows = "no setting can be worse, so none is shown to keep a share of it"
        return f"On {samples} FullKV's own {measure} is 0: {shows}."
    if best.sure is None or best.possible is None:
        return f"On {samples} no method certainly keeps {kept}{_missing(frontiers, best.margin)}"
    as_few = [other for other, frontier in others if frontier.sure and _same(frontier.sure, best.sure)]
    close = [
        other
        for other, frontier in others
        if other not in as_few and frontier.possible is not None and frontier.possible.bytes <= best.sure.bytes
    ]
    fewer = "fewer than any other method" if others[len(as_few) :] else ""
    rank = ", and ".join(filter(None, (f"as few as {', '.join(map(titled, as_few))}" if as_few else "", fewer)))
    beside = f" By these samples {', '.join(map(titled, close))} may need as few." if close else ""
    at_most = "at most " if best.end else ""
    return (
        f"On {samples} {titled(name)} certainly keeps {kept} in {at_most}{best.sure.bytes:.3f} of FullKV's bytes "
        f"({titled(best.sure.setting)}), possibly in {best.possible.bytes:.3f}{': ' * bool(rank)}{rank}.{beside}"
        f"{CHOSEN.format(methods=len(frontiers)) * bool(others)}"
    )


def _same(point: Point, other: Point) -> bool:
    """Whether two points have as many bytes, as tables show them."""
    return number(point.bytes) == number(other.bytes)


def _missing(frontiers: Mapping[str, Frontier], margin: float) -> str:
    """The possible loss of the best of the methods' settings with the most bytes, of which none holds, and the number
    of units that would decide."""
    lost = [-frontier.points[0].low for frontier in frontiers.values() if not isnan(frontier.points[0].low)]
    if not lost:
        texts = "a task with a single text (give each at least two, or leave task out)"
        return f", as there is no interval: {texts}, or scores outside of 0 to 1 that do not vary."
    needed = equal_pairs_needed(margin)
    least = (
        f"It takes at least {needed:,} texts or problems to show that no more is lost, even where none is."
        if needed
        else ""
    )
    return (
        f": the best setting with the most bytes may lose {min(lost):.3f}, the margin is {margin:.3f}. {least}".rstrip()
    )


def replaced(folder: Path, title: str, names: Iterable[str]) -> str:
    """A line where the folder has a frontier.md that is of something else, or has more methods; "" where it has not."""
    path = folder / "frontier.md"
    if not path.is_file():
        return ""
    first, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    methods = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][2:]  # below the header
    if first == as_text(title) and {*methods} <= {as_text(titled(name)) for name in names}:
        return ""
    return f"{path} is replaced: it had {', '.join(methods)} ({first}); all records stay"


def write_frontier(
    frontiers: Mapping[str, Frontier], full: float, table: TextTable, advice: str, folder: Path
) -> list[Path]:
    """frontier.md with the table and the sentence, frontier.csv with every setting that was tried."""
    markdown, csv = folder / "frontier.md", folder / "frontier.csv"
    write_atomically(markdown, f"{table.markdown()}\n{advice}\n")
    rows = [
        {
            "method": name,
            "setting": point.setting,
            "r_bytes": point.bytes,
            "score": full + point.difference,
            "difference": point.difference,
            "low": point.low,
            "high": point.high,
            "margin": frontier.margin,
            "held": point is frontier.sure,
            "possible": point is frontier.possible,
        }
        for name, frontier in frontiers.items()
        for point in frontier.points
    ]
    write_csv(pd.DataFrame(rows), csv)
    return [markdown, csv]


def _takes_ratio(frontier: Frontier) -> bool:
    return frontier.points[0].ratio < 1


def _bytes(frontier: Frontier, point: Point | None) -> str:
    if point is None:
        return MISSING
    last = "≤ " if point is frontier.points[-1] and _takes_ratio(frontier) else ""
    return f"{last}{point.bytes:.3f}"
