"""The runs of an experiment's configuration among all runs below some folders."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration import Configuration, Experiment
from kvbench.configuration.conf import config_dir
from kvbench.errors import UserError
from kvbench.papers.experiment import named_by
from kvbench.records.consistency import ABOUT
from kvbench.records.manifest import read_manifests
from kvbench.records.record_files import files_in
from kvbench.records.recorded_configuration import Recorded, recorded
from kvbench.utils.files import below
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.places import PLACES
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.text import short_hashes

# Columns of provenance in which the records of one model in one table must agree.
SHARED = [*ABOUT, "data_sha256"]

Runs = Mapping[Path, list[dict[str, Any]]]  # folder -> the manifests of its runs


def searched_folders(runs: Sequence[str], cfg: Configuration) -> Sequence[str]:
    """The folders to search: the folders in runs=, which must exist, or the configuration's output_dir."""
    for top in runs:
        if not Path(top).is_dir():
            raise UserError(f"runs={top} is not a folder")
    return runs or [cfg.output_dir]


def find_runs(folders: Sequence[str | Path]) -> Runs:
    """The folders with records below `folders`, and the manifests in each."""
    runs: dict[Path, list[dict[str, Any]]] = {}
    for top in folders:
        for folder in (path.parent for path in below(Path(top), "manifests")):
            manifests = [manifest for manifest in read_manifests(folder)[0].values() if "config" in manifest]
            if manifests and files_in(folder):
                runs.setdefault(folder, manifests)
    return runs


def matching_runs(cfg: Configuration, runs: Runs) -> Runs:
    """The runs of this configuration, and runs that read the same data (by hash) from other places.

    If no run read its data from the configuration's places, the runs that read data elsewhere.
    """
    differing = {folder: differing_keys(cfg, recorded(manifests[-1])) for folder, manifests in runs.items()}
    places = {f"benchmark.{key}" for key in PLACES}
    near = [folder for folder, keys in differing.items() if keys <= places]
    exact = [folder for folder in near if not differing[folder]]
    data = {runs[folder][-1].get("data_sha256") for folder in exact or near}
    return {folder: runs[folder] for folder in near if runs[folder][-1].get("data_sha256") in data}


def differing_keys(cfg: Configuration, other: Recorded) -> set[str]:
    """The keys, except methods' keys, whose difference from the configuration `other` makes different records."""
    a, b = _identity(Recorded.from_plain(cfg.plain)), _identity(other)
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


def _identity(config: Recorded) -> dict[str, object]:
    return {
        "model": config.model["name"],
        "model.chat_template": config.model.get("chat_template", "auto"),
        **{f"model.{key}": config.model.get(key) or {} for key in IDENTIFYING},
        "question": config.question or "visible",
        "first_token": config.first_token,
        "memory": config.memory,
        "records": "probes" if config.probe else "methods",
        **{f"benchmark.{key}": value for key, value in config.benchmark.items() if key not in DESCRIBING},
    }


def as_run(cfg: Configuration, manifests: Sequence[Mapping[str, Any]]) -> Configuration:
    """The configuration with the benchmark, the limit and the model's folder of its runs, as far as known."""
    if not manifests:
        return cfg
    limits = [recorded(manifest).limit for manifest in manifests]
    limit = None if None in limits else max(limit for limit in limits if limit is not None)
    last = recorded(manifests[-1])
    return cfg.changed(
        benchmark=last.benchmark, limit=limit, model=cfg.plain["model"] | {"path": last.model.get("path")}
    )


def require_one_provenance(records: pd.DataFrame, cfg: Configuration) -> None:
    """Raise UserError, with the folders and the way to choose one, if records differ in a column of SHARED."""
    distinct = records.drop_duplicates(["folder", *SHARED])
    differing = [name for name in SHARED if distinct[name].nunique(dropna=False) > 1]
    if not differing:
        return
    runs = [
        f"{row['folder']} ({', '.join(f'{name} {_short(row[name])}' for name in differing)})"
        for _, row in distinct.sort_values("folder").iterrows()
    ]
    raise UserError(
        f"several runs of {named_by(cfg).name} on {cfg.model.name} differ in {', '.join(differing)}: "
        f"{'; '.join(runs)}; choose with runs=FOLDER"
    )


def _short(value: object) -> str:
    return "unknown" if pd.isna(value) else short_hashes(str(value).removeprefix("torch."))


def no_records(
    experiment: Experiment, cfg: Configuration, overrides: Sequence[str], folders: Sequence[str], without: str = ""
) -> UserError:
    """The error for missing records, with the nearest run and the command that makes the records; `without`: what can
    be had without records."""
    several = len(experiment.models) > 1 and not any(override.startswith("model=") for override in overrides)
    command = shlex.join(["python", "-m", "kvbench", *["-m"] * several, *overrides, *config_dir()])
    near = _nearest_run(cfg, folders)
    return UserError(
        f"no records of {experiment.name} in {', '.join(map(str, folders))}"
        f"{f' (the nearest run, {near})' if near else ''}; "
        f"{f'{without}, and ' if without else ''}this command computes them: {command}"
    )


def _nearest_run(cfg: Configuration, folders: Sequence[str | Path]) -> str:
    """The folder of the run that differs least from the configuration, with the differing keys; empty without runs."""
    differing = {folder: sorted(differing_keys(cfg, recorded(runs[-1]))) for folder, runs in find_runs(folders).items()}
    if not differing:
        return ""
    folder = min(differing, key=lambda folder: len(differing[folder]))
    return f"{folder}, differs in {', '.join(differing[folder]) or 'its settings'}"
