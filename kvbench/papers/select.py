"""Which records belong to an experiment: those of its models, benchmark, protocol and settings, and no others."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.base import PLACES
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings, is_full
from kvbench.papers.compose import baseline
from kvbench.papers.experiment import Experiment, chosen_methods
from kvbench.records import check, gather
from kvbench.records.consistency import ABOUT, Finding
from kvbench.records.load import refuse
from kvbench.records.manifest import read_manifests
from kvbench.records.store import record_files
from kvbench.utils.console import warn
from kvbench.utils.text import count

# What the records of one model in one table must share.
SHARED = [*ABOUT, "data_sha256"]

# What of a record tells its setting.
MADE = ["method", "parameters", "ratio", "budget"]


@dataclass(frozen=True)
class Part:
    """One model's share of an experiment.

    `cfg` is what was asked for, with the benchmark and the limit that the runs had. `records` has one row per
    sample and setting, sorted, with the setting's key in the column `setting_key`.
    """

    cfg: dict
    settings: list[Setting]
    baseline: Setting  # FullKV, compared with even where it is no row of the table
    records: pd.DataFrame

    @property
    def model(self) -> str:
        return self.cfg["model"]["name"]

    @property
    def lengths(self) -> list[int | None]:
        """RULER's lengths, each with rows of its own; of any other benchmark None alone."""
        ruler = set(self.records["benchmark"]) == {"ruler"}
        return list(self.cfg["benchmark"]["lengths"]) if ruler else [None]

    def of(self, setting: Setting, length: int | None) -> pd.DataFrame:
        rows = self.records[self.records["setting_key"] == setting.key]
        return rows if length is None else rows[rows["length"] == length]


def select(cfg: Mapping, folders: Sequence[str | Path]) -> tuple[Part | None, list[Finding]]:
    """The part of an experiment that one composed configuration asks for, and what was found in its records.

    None where there are no records of it. Raises UserError where runs that differ in SHARED belong to it.
    """
    settings = build_settings(chosen_methods(cfg), cfg["ratio"], cfg["budget"])
    full = next(filter(is_full, settings), None) or baseline()
    runs = matching(cfg, run_folders(folders))
    if not runs:
        return None, []
    records, findings = gather(*runs)
    refuse(findings)
    records = records[records["folder"].isin([str(folder) for folder in runs])]
    records = records.assign(
        setting_key=[key_of(*made) for made in zip(*(records[name] for name in MADE), strict=True)]
    )
    records = records[records["setting_key"].isin({s.key for s in settings} | {full.key})]
    if records.empty:
        return None, findings
    one_provenance(records, cfg)
    manifests = [manifest for folder in dict.fromkeys(records["folder"]) for manifest in runs[Path(folder)]]
    return Part(as_run(cfg, manifests), settings, full, once(records)), findings


def run_folders(folders: Sequence[str | Path]) -> dict[Path, list[dict]]:
    """The folders of records below `folders`, with the manifests of each."""
    found = {}
    for top in folders:
        for below in sorted(Path(top).rglob("manifests")):
            manifests = [one for one in read_manifests(below.parent)[0].values() if "config" in one]
            if manifests and record_files(below.parent):
                found.setdefault(below.parent, manifests)
    return found


def matching(cfg: Mapping, runs: Mapping[Path, list[dict]]) -> dict[Path, list[dict]]:
    """The runs of this configuration; where there are none, those whose data only lie elsewhere.

    Runs of data that lie elsewhere, but are the same by their hash, are as good as those of the very configuration.
    """
    differing = {folder: differences(cfg, manifests[-1]["config"]) for folder, manifests in runs.items()}
    places = {f"benchmark.{key}" for key in PLACES}
    near = [folder for folder, keys in differing.items() if keys <= places]
    very = [folder for folder in near if not differing[folder]]
    data = {runs[folder][-1].get("data_sha256") for folder in very or near}
    return {folder: runs[folder] for folder in near if runs[folder][-1].get("data_sha256") in data}


def nearest(cfg: Mapping, folders: Sequence[str | Path]) -> str:
    """Where the run that differs least from the configuration lies, and in what; empty where there is no run."""
    told = {
        folder: sorted(differences(cfg, manifests[-1]["config"])) for folder, manifests in run_folders(folders).items()
    }
    if not told:
        return ""
    folder = min(told, key=lambda folder: len(told[folder]))
    return f"{folder}, differs in {', '.join(told[folder]) or 'its settings'}"


def differences(asked: Mapping, had: Mapping) -> set[str]:
    """The keys, besides those of methods, in which two configurations would make different records."""
    a, b = identity(asked), identity(had)
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


def identity(cfg: Mapping) -> dict[str, object]:
    return {
        "model": cfg["model"]["name"],
        "model.chat_template": cfg["model"].get("chat_template", "auto"),
        "question": cfg.get("question", "visible"),
        "memory": cfg.get("memory", "shared"),
        "records": "probes" if cfg.get("probe") else "methods",
        **{f"benchmark.{key}": value for key, value in cfg["benchmark"].items() if key != "about"},
    }


def one_provenance(records: pd.DataFrame, cfg: Mapping) -> None:
    """Raise UserError, naming the folders and how to choose, where records differ in what a table must share."""
    told = records.drop_duplicates(["folder", *SHARED])
    differing = [name for name in SHARED if told[name].nunique(dropna=False) > 1]
    if not differing:
        return
    runs = [
        f"{row['folder']} ({', '.join(f'{name} {_short(row[name])}' for name in differing)})"
        for _, row in told.sort_values("folder").iterrows()
    ]
    raise UserError(
        f"several runs of {Experiment.of(cfg).name} on {cfg['model']['name']} differ in {', '.join(differing)}: "
        f"{'; '.join(runs)}; choose with runs=FOLDER"
    )


def once(records: pd.DataFrame) -> pd.DataFrame:
    """Every sample under a setting once, in an order that the files do not decide.

    The same data read from two places give two folders; their records must agree.
    """
    cells = ["setting_key", "sample"]
    records = records.sort_values([*cells, "folder"], kind="stable", ignore_index=True)
    scores = records["scores"].map(json.dumps)
    differ = scores.groupby([records[name] for name in cells]).transform("nunique") > 1
    if differ.any():
        first = records[differ].iloc[0]
        raise UserError(
            f"{count(int(differ.sum()), 'record')} of the same samples and settings have different scores, for "
            f"example sample {first['sample']!r} under {first['setting']!r} in "
            f"{' and '.join(sorted(set(records[differ]['folder'])))}; choose with runs=FOLDER"
        )
    return records.drop_duplicates(cells, ignore_index=True)


def key_of(method: str, parameters: str, ratio: float | None, budget: float | None) -> str:
    """The key of the setting that made a record, as Setting.key is; a column's gaps are nan."""
    ratio = None if pd.isna(ratio) else float(ratio)
    budget = None if pd.isna(budget) else int(budget)
    return json.dumps([method, parameters, ratio, budget])


def as_run(cfg: Mapping, manifests: Sequence[Mapping]) -> dict:
    """The configuration with what the runs' own say of the data and of how many samples there are."""
    limits = [manifest["config"].get("limit") for manifest in manifests]
    limit = None if None in limits else max(limits)
    return {**cfg, "benchmark": manifests[-1]["config"]["benchmark"], "limit": limit}


def incomplete(part: Part) -> Iterator[tuple[Setting, int, int]]:
    """Settings that have fewer samples than the one that has most: how many, and how many that one has."""
    counts = Counter(part.records["setting_key"])
    for setting in part.settings:
        if counts[setting.key] < (most := max(counts.values())):
            yield setting, counts[setting.key], most


def _short(value: object) -> str:
    text = "unknown" if pd.isna(value) else str(value).removeprefix("torch.")
    return text[:10] if len(text) > 30 else text


def searched(runs: Sequence[str], cfg: Mapping) -> Sequence[str]:
    """The folders to look for records in: those after runs=, which must be there, or the configuration's output_dir."""
    for top in runs:
        if not Path(top).is_dir():
            raise UserError(f"runs={top} is not a folder")
    return runs or [cfg["output_dir"]]


def tell(part: Part | None, findings: Sequence) -> Part | None:
    """The part, once what was found in its records has been told."""
    more = [] if part is None else check(part.records)
    for finding in [*findings, *more]:
        warn(finding.message)
    return part


def nothing(experiment: Experiment, cfg: dict, overrides: Sequence[str], runs: Sequence[str]) -> str:
    """That there are no records, what comes nearest, and the command that makes them."""
    several = len(experiment.models) > 1 and not any(override.startswith("model=") for override in overrides)
    command = shlex.join(["python", "-m", "kvbench", *["-m"] * several, *overrides])
    near = nearest(cfg, runs)
    return (
        f"no records of {experiment.name} in {', '.join(map(str, runs))}"
        f"{f' (the nearest run, {near})' if near else ''}; this command makes them: {command}"
    )
