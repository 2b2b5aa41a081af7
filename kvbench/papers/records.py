"""The records of an experiment: records with its models, benchmark, protocol and settings."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kvbench.configuration import Configuration, configured
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings, is_full, settings_of
from kvbench.metrics.aggregate import tasks_of
from kvbench.papers.columns import named_class
from kvbench.papers.runs import Runs, as_run, find_runs, matching_runs, require_one_provenance
from kvbench.probes import build_probes
from kvbench.records import Finding, check, gather
from kvbench.records.identity import FULL, method_key
from kvbench.records.load import refuse
from kvbench.utils.console import warn
from kvbench.utils.text import count

# Fields of a record that identify its setting.
SETTING_FIELDS = ["method", "parameters", "ratio", "budget"]


@dataclass(frozen=True)
class ModelRecords:
    """The records of one model that belong to an experiment.

    cfg       the requested configuration, with the benchmark and the limit of the runs.
    baseline  FullKV, the reference of differences even if the table has no row for it.
    records   one row per sample and setting, sorted; the setting's key is the column `setting_key`.
    """

    cfg: Configuration
    settings: list[Setting]
    baseline: Setting
    records: pd.DataFrame

    @property
    def model(self) -> str:
        return self.cfg.model.name

    @property
    def lengths(self) -> list[int | None]:
        """Context lengths in tokens, each with separate rows; [None] for a benchmark whose lengths have none."""
        apart = named_class(self.cfg.benchmark).rows_by_length
        return list(self.cfg.benchmark["lengths"]) if apart else [None]

    @property
    def tasks(self) -> list[str]:
        """The tasks of the records, in order."""
        return sorted({*tasks_of(self.records)} - {""})

    def records_of(self, setting: Setting, length: int | None = None) -> pd.DataFrame:
        """The records of a setting; with `length` only the records of this context length."""
        rows = self.records[self.records["setting_key"] == setting.key]
        return rows if length is None else rows[rows["length"] == length]

    def incomplete(self) -> Iterator["Incomplete"]:
        """The settings with fewer samples than another setting."""
        counts = Counter(self.records["setting_key"])
        for setting in self.settings:
            if counts[setting.key] < (most := max(counts.values())):
                yield Incomplete(setting, counts[setting.key], most)


class Incomplete(NamedTuple):
    """A setting with its number of samples, and the largest number of any setting."""

    setting: Setting
    samples: int
    most: int


def select(cfg: Configuration, folders: Sequence[str | Path]) -> ModelRecords | None:
    """The records of one composed configuration of an experiment, from runs below `folders`; None without records.

    Findings about them are printed as warnings. Raises UserError if matching runs differ in runs.SHARED.
    """
    settings = settings_of(cfg)
    full = next(filter(is_full, settings), None) or _full_kv()
    records, runs = _records(cfg, folders)
    if records.empty:
        return None
    keys = [_setting_key(*row) for row in zip(*(records[name] for name in SETTING_FIELDS), strict=True)]
    records = records.assign(setting_key=keys)
    records = records[records["setting_key"].isin({s.key for s in settings} | {full.key})]
    if records.empty:
        return None
    cfg = _as_runs(cfg, records, runs)
    records = _one_per_cell(records)
    _warn(check(records))
    return ModelRecords(cfg, settings, full, records)


def select_probes(cfg: Configuration, folders: Sequence[str | Path]) -> tuple[Configuration, pd.DataFrame]:
    """The configuration of the runs of an experiment of probes, and its records in the order of its probes."""
    records, runs = _records(cfg, folders)
    if records.empty:
        return cfg, records
    order = {(probe.name, probe.parameters): place for place, probe in enumerate(build_probes(cfg.probe))}
    place = [order.get(pair) for pair in zip(records["probe"], records["parameters"], strict=True)]
    records = records.assign(place=place).dropna(subset="place")
    if records.empty:
        return cfg, records
    cfg = _as_runs(cfg, records, runs)
    records = records.sort_values(["place", "sample", "folder"], kind="stable", ignore_index=True)
    return cfg, records.drop_duplicates(["place", "sample"], ignore_index=True)


def _records(cfg: Configuration, folders: Sequence[str | Path]) -> tuple[pd.DataFrame, Runs]:
    """All records of the runs that match the configuration, and these runs."""
    runs = matching_runs(cfg, find_runs(folders))
    if not runs:
        return pd.DataFrame(), runs
    records, findings = gather(*runs)
    refuse(findings)
    _warn(findings)
    return records[records["folder"].isin([str(folder) for folder in runs])], runs


def _as_runs(cfg: Configuration, records: pd.DataFrame, runs: Runs) -> Configuration:
    """The configuration of the runs of `records`. Raises UserError if these differ in provenance."""
    require_one_provenance(records, cfg)
    return as_run(cfg, [manifest for folder in dict.fromkeys(records["folder"]) for manifest in runs[Path(folder)]])


def _full_kv() -> Setting:
    (setting,) = build_settings({FULL: configured([f"method=[{FULL}]"]).method[FULL]}, None, None)
    return setting


def _one_per_cell(records: pd.DataFrame) -> pd.DataFrame:
    """One record per setting and sample, in an order that does not depend on the files.

    The same data read from two places make two folders, whose records must have the same scores. Raises UserError if
    they differ.
    """
    cell = ["setting_key", "sample"]
    records = records.sort_values([*cell, "folder"], kind="stable", ignore_index=True)
    scores = records["scores"].map(json.dumps)
    differ = scores.groupby([records[name] for name in cell]).transform("nunique") > 1
    if differ.any():
        first = records[differ].iloc[0]
        raise UserError(
            f"{count(int(differ.sum()), 'record')} of the same samples and settings have different scores, for "
            f"example sample {first['sample']!r} under {first['setting']!r} in "
            f"{' and '.join(sorted(set(records[differ]['folder'])))}; choose with runs=FOLDER"
        )
    return records.drop_duplicates(cell, ignore_index=True)


def _setting_key(method: str, parameters: str, ratio: float | None, budget: float | None) -> str:
    """The key of the setting that made a record, equal to Setting.key; missing values of a column are nan."""
    ratio = None if ratio is None or pd.isna(ratio) else float(ratio)
    budget = None if budget is None or pd.isna(budget) else int(budget)
    return method_key(method, parameters, ratio, budget)


def _warn(findings: Sequence[Finding]) -> None:
    for finding in findings:
        warn(finding.message)
