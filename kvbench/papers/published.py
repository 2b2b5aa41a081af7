"""The values that the four papers print, and the known errors in them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError, unknown

_PACKAGED = Path(__file__).parents[1] / "published"  # in an installed wheel
PUBLISHED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "results" / "published"

COLUMNS = "paper item model method preset setting budget ratio column value unit row note".split()
ERRATA = "errata"
ERRATA_COLUMNS = "paper item model method setting row column kind text".split()
_SELECTS = ERRATA_COLUMNS[:-2]  # the fields by which an erratum selects published values

SCORE_UNITS = {"score": 1.0, "fraction": 100.0}  # unit of a published score -> factor to 0 to 100


def items(folder: Path = PUBLISHED) -> list[str]:
    """Every table, figure and text with published values, such as `spindlekv_table10`, in natural order."""
    names = (path.stem for path in folder.glob("*.csv"))
    return sorted((name for name in names if name != ERRATA), key=_natural)


def published(item: str | None, folder: Path = PUBLISHED) -> pd.DataFrame:
    """One row per printed value of `item`, in the paper's order; columns COLUMNS and `printed`. None has no values.

    `printed` is the value's text, `value` the value as a number (nan if it is illegible), `budget` in tokens per layer
    and head (integer or missing), `ratio` a fraction of FullKV (nan without one). All other columns are text, empty if
    they do not apply. Raises UserError for an unknown item or a damaged file.
    """
    if item is None:
        return pd.DataFrame(columns=[*COLUMNS, "printed"])
    if item not in items(folder):
        raise unknown("published item", item, items(folder))
    values = _read(folder / f"{item}.csv", COLUMNS)
    values.insert(COLUMNS.index("value") + 1, "printed", values["value"])
    try:
        values["value"] = pd.to_numeric(values["printed"].str.replace(",", ""))
        values["budget"] = pd.to_numeric(values["budget"]).astype("Int64")
        values["ratio"] = pd.to_numeric(values["ratio"]).astype(float)
    except ValueError as error:
        raise UserError(f"{folder / item}.csv: {error}") from error
    return values


def errata(item: str | None, folder: Path = PUBLISHED) -> pd.DataFrame:
    """The known errors of `item`: one row per erratum, all text; `concerns` selects the values of an erratum."""
    every = _read(folder / f"{ERRATA}.csv", ERRATA_COLUMNS)
    sources = published(item, folder)[["paper", "item"]].drop_duplicates()
    return every.merge(sources, on=["paper", "item"])[ERRATA_COLUMNS]


def of_items(read: Callable[[str | None], pd.DataFrame], items: Iterable[str | None]) -> pd.DataFrame:
    """What `published` or `errata` reads of several items, each once: some experiments have an item for each model."""
    return pd.concat([read(item) for item in dict.fromkeys(items)], ignore_index=True)


def concerns(erratum: pd.Series, values: pd.DataFrame) -> pd.Series:
    """Mask of the published values that agree with all fields of an erratum that are not empty."""
    return agree(values, {field: erratum[field] for field in _SELECTS if erratum[field]})


def agree(values: pd.DataFrame, fields: Mapping[str, str]) -> pd.Series:
    """Mask of the published values that have these contents in these columns."""
    hit = pd.Series(True, index=values.index)
    for field, content in fields.items():
        hit &= values[field] == content
    return hit


def footnotes(values: pd.DataFrame, errata: pd.DataFrame) -> tuple[list[str], list[tuple[int, ...]]]:
    """The texts of the errata that concern `values`, and for each value the numbers (from 1) of its texts.

    Errata with the same text are one footnote.
    """
    texts: list[str] = []
    marks: list[list[int]] = [[] for _ in range(len(values))]
    for _, erratum in errata.iterrows():
        hits = concerns(erratum, values).to_numpy().nonzero()[0]
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
    """A key that sorts table 2 before table 10."""
    word = name.rstrip("0123456789")
    return word, int(name[len(word) :] or 0)
