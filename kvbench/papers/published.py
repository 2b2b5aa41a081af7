"""The figures the four papers print, as data, and what is known to be wrong in them."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError, unknown

_PACKAGED = Path(__file__).parents[1] / "published"  # in an installed wheel
PUBLISHED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "results" / "published"

COLUMNS = "paper item model method preset setting budget ratio column value unit row note".split()
ERRATA = "errata"
ERRATA_COLUMNS = "paper item model method setting row column kind text".split()
_WHERE = ERRATA_COLUMNS[:-2]  # what an erratum says of the figures it concerns


def items(folder: Path = PUBLISHED) -> list[str]:
    """Every published table, figure and text there is data of, such as `spindlekv_table10`: paper, then number."""
    names = (path.stem for path in folder.glob("*.csv"))
    return sorted((name for name in names if name != ERRATA), key=_natural)


def published(item: str, folder: Path = PUBLISHED) -> pd.DataFrame:
    """One row per printed figure of `item`, in the order of the paper.

    Columns as in COLUMNS, and `printed`, the figure's own text. `value` is that text as a number (nan where it
    could not be read), `budget` tokens per layer and head (integer or missing), `ratio` a fraction of FullKV
    (nan where there is none); all else is text, empty where it does not apply. Raises UserError.
    """
    if item not in items(folder):
        raise unknown("published item", item, items(folder))
    figures = _read(folder / f"{item}.csv", COLUMNS)
    figures.insert(COLUMNS.index("value") + 1, "printed", figures["value"])
    try:
        figures["value"] = pd.to_numeric(figures["printed"].str.replace(",", ""))
        figures["budget"] = pd.to_numeric(figures["budget"]).astype("Int64")
        figures["ratio"] = pd.to_numeric(figures["ratio"]).astype(float)
    except ValueError as error:
        raise UserError(f"{folder / item}.csv: {error}") from error
    return figures


def errata(item: str, folder: Path = PUBLISHED) -> pd.DataFrame:
    """What is wrong in `item`: one row per erratum, all text; see `concerns` for how far each one reaches."""
    figures = published(item, folder)
    every = _read(folder / f"{ERRATA}.csv", ERRATA_COLUMNS)
    here = (every["paper"] == figures["paper"].iloc[0]) & (every["item"] == figures["item"].iloc[0])
    return every[here].reset_index(drop=True)


def concerns(erratum: pd.Series, figures: pd.DataFrame) -> pd.Series:
    """Which of `figures` an erratum is about: those that agree with all of its fields that are not empty."""
    return agree(figures, {field: erratum[field] for field in _WHERE if erratum[field]})


def agree(figures: pd.DataFrame, where: Mapping[str, str]) -> pd.Series:
    """Which of `figures` have these values in these columns."""
    hit = pd.Series(True, index=figures.index)
    for field, value in where.items():
        hit &= figures[field] == value
    return hit


def footnotes(figures: pd.DataFrame, wrong: pd.DataFrame) -> tuple[list[str], list[tuple[int, ...]]]:
    """The texts to print under a table, and for each of `figures` the numbers (from 1) of those that concern it.

    Errata with the same text are one footnote; texts that concern none of the figures are left out.
    """
    texts: list[str] = []
    marks: list[list[int]] = [[] for _ in range(len(figures))]
    for _, erratum in wrong.iterrows():
        hits = concerns(erratum, figures).to_numpy().nonzero()[0]
        if len(hits) and erratum["text"] not in texts:
            texts.append(erratum["text"])
        for i in hits:
            number = texts.index(erratum["text"]) + 1
            if number not in marks[i]:
                marks[i].append(number)
    return texts, [tuple(numbers) for numbers in marks]


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if list(frame.columns) != columns:
        raise UserError(f"{path} has columns {', '.join(frame.columns)}; expected {', '.join(columns)}")
    return frame


def _natural(name: str) -> tuple[str, int]:
    """Table 2 before table 10."""
    word = name.rstrip("0123456789")
    return word, int(name[len(word) :] or 0)
