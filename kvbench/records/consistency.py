"""Findings about records that affect averages over them; records are never merged without a finding."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration.conf import flat
from kvbench.records.provenance import PROVENANCE
from kvbench.records.store import PACK
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.text import count, short_hashes

# Rows of one cell of a table agree in CELL, rows of one table in TABLE, and rows of one setting in SETTING: a name may
# have several sets of parameters, or a ratio of 1 and a budget of 1, and tables then have a row for each.
BESIDE_NAME = ["parameters", "ratio", "budget"]
SETTING = ["setting", *BESIDE_NAME]
CELL = ["benchmark", "model", "question", "sample", *SETTING]
TABLE = CELL[:3]

# What runs measure that are to (`distance=true`), and others do not.
ON_REQUEST = ("distance",)

VALUES = 4  # of a column that a finding names

# Columns in which two rows of a cell may differ.
DIFFER = ["memory", *PROVENANCE]

# Provenance in which the records of a table must agree, and provenance whose mixture is only reported. Neither has the
# data, since the tasks of a benchmark may run one by one.
ABOUT = ["weights", "chat_template", *IDENTIFYING, "dtype", "device", "first_token"]
WITH = ["processor", "kvbench", "git", "plugins", "torch", "transformers", "kernels", "sdpa"]


@dataclass(frozen=True)
class Finding:
    """One line about records; `wrong` if a table over them would be misleading."""

    kind: str  # torn, edited, manifest, duplicate, outcome, data, settings, conflict or mixed
    message: str
    wrong: bool = True


def check(records: pd.DataFrame) -> list[Finding]:
    """Conflicts and mixtures of provenance in a frame of `load`, or in any part of it.

    data: samples of several data sets have the same names, which is only noted: each set is a separate table.
    settings: several settings have the same name, which is only noted: tables tell them apart by BESIDE_NAME.
    conflict: cells with several rows, and the columns in which they differ; an average would count them as samples.
    mixed: a table whose cells come from different weights, chat templates, dtypes, devices or protocols of the first
    token, which is wrong, or from different code or machines, which is only noted.
    """
    if records.empty or not {*CELL} - {"question", *BESIDE_NAME} <= {*records}:
        return []
    findings = []
    for rows in tables_of(records):
        sets = by_data(rows)
        if len(sets) > 1:
            findings.append(Finding("data", _several(rows, len(sets)), False))
        findings += [finding for part in sets for finding in _check_table(part)]
    return findings


def tables_of(records: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each possible table, whatever data sets they are of."""
    names = [name for name in TABLE if name in records]
    return [rows for _, rows in records.groupby(names, dropna=False, sort=False)]


def by_data(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of a table, apart for each of its data sets where a cell has rows of several.

    Tasks of a benchmark that were run one by one have no cell in common, and stay one table.
    """
    if "data_sha256" not in rows or not (rows.groupby(["sample", "setting"])["data_sha256"].nunique() > 1).any():
        return [rows]
    return [part for _, part in rows.groupby("data_sha256", dropna=False, sort=False)]


def _check_table(rows: pd.DataFrame) -> list[Finding]:
    """What is to be said of one table over one data set."""
    findings, reported = [], set()
    if len(named := alike(rows)):
        findings.append(Finding("settings", _named_alike(named), False))
    for differing, cells in conflicts(rows):
        findings.append(Finding("conflict", _conflict(cells, differing)))
        reported |= {*differing}
    for names, wrong in ((ABOUT, True), (WITH, False)):
        mixed = [name for name in names if name in rows and name not in reported and rows[name].nunique() > 1]
        if mixed:
            message = f"{_table(rows)}: records of more than one {_described(rows, mixed)}"
            findings.append(Finding("mixed", message, wrong))
    return findings


def conflicts(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """The rows of a table whose cell has several, grouped by the columns in which they differ."""
    cells = ["sample", *of_setting(rows)]
    rows = rows[rows.duplicated(cells, keep=False)]
    if rows.empty:
        return
    cell = rows.groupby(cells, sort=False, dropna=False).ngroup()
    differs = pd.DataFrame(index=cell.unique())
    for name in DIFFER:
        if name in rows:
            values = pd.DataFrame({"cell": cell, "value": rows[name]}).drop_duplicates()
            differs[name] = values.groupby("cell").size() > 1
    differing = differs.apply(lambda flags: tuple(flags.index[flags]), axis=1)
    yield from rows.groupby(cell.map(differing), sort=False)


def alike(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table under a name that several of its settings have."""
    settings = rows[of_setting(rows)].drop_duplicates()["setting"]
    return rows[rows["setting"].isin(settings[settings.duplicated()])]


def of_setting(rows: pd.DataFrame) -> list[str]:
    """The columns that tell settings apart; records of engines, probes or earlier versions may lack some."""
    return [name for name in SETTING if name in rows]


def _several(rows: pd.DataFrame, sets: int) -> str:
    where = f", in {_values(rows['folder'])}" if "folder" in rows else ""
    return f"{_table(rows)}: {sets} data sets with samples of the same names{where}; each is a table of its own"


def _named_alike(rows: pd.DataFrame) -> str:
    names = list(rows["setting"].unique())
    example = "" if len(names) == 1 else f" and {count(len(names) - 1, 'more name')}"
    first = rows[rows["setting"] == names[0]]
    differ = _described(first, [name for name in of_setting(rows) if first[name].nunique(dropna=False) > 1])
    return (
        f"{_table(rows)}: several settings are named {names[0]!r}{example}; they differ in {differ}: tables give each "
        "a row, and a mean over the name alone would mix them"
    )


def _conflict(rows: pd.DataFrame, differing: Sequence[str]) -> str:
    cells = count(len(rows.drop_duplicates(["sample", *of_setting(rows)])), "cell")
    first = rows.iloc[0]
    what = _described(rows, differing) or "nothing that the manifests hold"
    return (
        f"{_table(rows)}: {cells} (sample × setting) with several rows, for example sample {first['sample']!r} under "
        f"{first['setting']!r}; they differ in {what}; they are in {_values(rows['folder'])}"
    )


@dataclass
class Copies:
    """Records that several lines of the files hold."""

    # (first file, other file) -> how many
    equal: Counter[tuple[Path, Path]] = field(default_factory=Counter)
    # (first file, other file, fields that differ) -> (sample, setting) of each
    unequal: defaultdict[tuple[Path, Path, tuple[str, ...]], list[tuple[object, object]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, first: dict[str, Any], first_file: Path, again: dict[str, Any], file: Path) -> None:
        """Count a further copy; an equal copy in a pack is expected."""
        if fields := differences(first, again):
            self.unequal[first_file, file, fields].append((again.get("sample"), again.get("setting")))
        elif PACK not in (first_file.name, file.name):
            self.equal[first_file, file] += 1

    def findings(self) -> list[Finding]:
        return [
            *(
                Finding("duplicate", f"{count(n, 'record')} with the same outcome {_both(*files)}; one is kept", False)
                for files, n in self.equal.items()
            ),
            *(
                Finding(
                    "outcome",
                    f"{count(len(which), 'record')} with different outcomes {_both(first, again)}: "
                    f"{', '.join(fields)}; for example sample {which[0][0]!r} under {which[0][1]!r}: "
                    + _way_out(first, again),
                )
                for (first, again, fields), which in self.unequal.items()
            ),
        ]


def differences(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    """The fields in which two records of one key contradict each other.

    The run, its times and its peaks contradict nothing; nor does the model's name, since the key has the hashes of its
    weights, which may have several names; nor does a field that only one of the two records has, by another version,
    or a measurement that only one run was to make (ON_REQUEST); nor do the batch and the engine that decoded an answer.
    A record of speed is about its engine.
    """
    ways = {"run", "model"} | ({"decode_batch", "decode_engine"} if a.get("kind") == "method" else set())
    return tuple(
        name
        for name in a
        if name in b
        and a[name] != b[name]
        and not (name in ways or name.endswith("_seconds") or name.startswith("peak_"))
        and not (a[name] != a[name] and b[name] != b[name])  # both NaN
        and not (name in ON_REQUEST and None in (a[name], b[name]))
    )


def measures_more(record: dict[str, Any], copy: dict[str, Any]) -> bool:
    """Whether a record has a measurement of ON_REQUEST that its copy lacks, and lacks none itself."""
    measured, before = ({name for name in ON_REQUEST if each.get(name) is not None} for each in (record, copy))
    return measured > before


def _way_out(first: Path, again: Path) -> str:
    if first.parent == again.parent:
        return f"kvbench records {shlex.quote(str(first.parent))} --set-aside-copies keeps the first"
    return "leave one of the two folders out"


def _both(first: Path, again: Path) -> str:
    return f"twice in {first}" if first == again else f"in {first} and {again}"


def _table(rows: pd.DataFrame) -> str:
    names = [name for name in TABLE if name in rows]
    return " · ".join(
        f"{name} {value}" if name == "question" else str(value) for name, value in rows[names].iloc[0].items()
    )


def _described(rows: pd.DataFrame, names: Sequence[str]) -> str:
    return "; ".join(f"{name} {_values(rows[name])}" for name in names)


def _values(column: pd.Series) -> str:
    """The distinct values of a column with hashes cut short; of `parameters` only the values that differ."""
    values = list(column.unique())
    if column.name == "parameters" and all(isinstance(value, str) for value in values):
        return _parameters([json.loads(value) for value in values])
    absent = "none" if column.name in BESIDE_NAME else "unknown"
    texts = [absent if pd.isna(value) else short_hashes(str(value)) for value in values]
    return " | ".join(texts[:VALUES]) + (f" and {len(texts) - VALUES} more" if len(texts) > VALUES else "")


def _parameters(nested: list[dict[str, Any]]) -> str:
    sets = [flat(parameters) for parameters in nested]
    names = dict.fromkeys(name for parameters in sets for name in parameters)
    values = {
        name: list(dict.fromkeys(json.dumps(leaves[name]) if name in leaves else "default" for leaves in sets))
        for name in names
    }
    return ", ".join(f"{name} {' | '.join(some)}" for name, some in values.items() if len(some) > 1)
