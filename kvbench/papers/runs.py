"""The runs that made the records of an experiment's configuration, among all runs below some folders."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError
from kvbench.papers.experiment import Experiment
from kvbench.records.consistency import ABOUT
from kvbench.records.load import files_in
from kvbench.records.manifest import read_manifests
from kvbench.utils.text import short_hashes
from kvbench.utils.validation import PLACES

# Columns of provenance in which the records of one model in one table must agree.
SHARED = [*ABOUT, "data_sha256"]

Runs = Mapping[Path, list[dict]]  # folder -> the manifests of its runs


def searched_folders(runs: Sequence[str], cfg: Mapping) -> Sequence[str]:
    """The folders to search: those after runs=, which must exist, or the configuration's output_dir."""
    for top in runs:
        if not Path(top).is_dir():
            raise UserError(f"runs={top} is not a folder")
    return runs or [cfg["output_dir"]]


def find_runs(folders: Sequence[str | Path]) -> Runs:
    """The folders of records below `folders`."""
    found = {}
    for top in folders:
        for below in sorted(Path(top).rglob("manifests")):
            manifests = [one for one in read_manifests(below.parent)[0].values() if "config" in one]
            if manifests and files_in(below.parent):
                found.setdefault(below.parent, manifests)
    return found


def matching_runs(cfg: Mapping, runs: Runs) -> Runs:
    """The runs of this configuration, and those that read the same data, by their hash, from other places.

    Where no run read its data from the configuration's places, the runs that read theirs elsewhere.
    """
    differing = {folder: differing_keys(cfg, manifests[-1]["config"]) for folder, manifests in runs.items()}
    places = {f"benchmark.{key}" for key in PLACES}
    near = [folder for folder, keys in differing.items() if keys <= places]
    exact = [folder for folder in near if not differing[folder]]
    data = {runs[folder][-1].get("data_sha256") for folder in exact or near}
    return {folder: runs[folder] for folder in near if runs[folder][-1].get("data_sha256") in data}


def differing_keys(cfg: Mapping, other: Mapping) -> set[str]:
    """The keys, besides those of methods, in which two configurations would make different records."""
    a, b = _identity(cfg), _identity(other)
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


def _identity(cfg: Mapping) -> dict[str, object]:
    return {
        "model": cfg["model"]["name"],
        "model.chat_template": cfg["model"].get("chat_template", "auto"),
        **{f"model.{key}": cfg["model"].get(key) or {} for key in ("template_args", "load_args")},
        "question": cfg.get("question", "visible"),
        "first_token": cfg.get("first_token", "full"),
        "memory": cfg.get("memory", "shared"),
        "records": "probes" if cfg.get("probe") else "methods",
        **{f"benchmark.{key}": value for key, value in cfg["benchmark"].items() if key != "about"},
    }


def as_run(cfg: Mapping, manifests: Sequence[Mapping]) -> dict:
    """The configuration with the benchmark, the limit and the model's folder that its runs had, as far as known."""
    if not manifests:
        return {**cfg}
    limits = [manifest["config"].get("limit") for manifest in manifests]
    limit = None if None in limits else max(limits)
    last = manifests[-1]["config"]
    model = {**cfg["model"], "path": last["model"].get("path")}
    return {**cfg, "benchmark": last["benchmark"], "limit": limit, "model": model}


def require_one_provenance(records: pd.DataFrame, cfg: Mapping) -> None:
    """Raise UserError, naming the folders and how to choose one, where records differ in a column of SHARED."""
    distinct = records.drop_duplicates(["folder", *SHARED])
    differing = [name for name in SHARED if distinct[name].nunique(dropna=False) > 1]
    if not differing:
        return
    runs = [
        f"{row['folder']} ({', '.join(f'{name} {_short(row[name])}' for name in differing)})"
        for _, row in distinct.sort_values("folder").iterrows()
    ]
    raise UserError(
        f"several runs of {Experiment.of(cfg).name} on {cfg['model']['name']} differ in {', '.join(differing)}: "
        f"{'; '.join(runs)}; choose with runs=FOLDER"
    )


def _short(value: object) -> str:
    return "unknown" if pd.isna(value) else short_hashes(str(value).removeprefix("torch."))


def no_records(experiment: Experiment, cfg: Mapping, overrides: Sequence[str], folders: Sequence[str]) -> UserError:
    """The error that there are no records: the nearest run, and the command that makes them."""
    several = len(experiment.models) > 1 and not any(override.startswith("model=") for override in overrides)
    command = shlex.join(["python", "-m", "kvbench", *["-m"] * several, *overrides])
    near = _nearest_run(cfg, folders)
    return UserError(
        f"no records of {experiment.name} in {', '.join(map(str, folders))}"
        f"{f' (the nearest run, {near})' if near else ''}; published=true shows the published values alone, and this "
        f"command computes them: {command}"
    )


def _nearest_run(cfg: Mapping, folders: Sequence[str | Path]) -> str:
    """The folder of the run that differs least from the configuration, and in which keys; empty without any run."""
    differing = {folder: sorted(differing_keys(cfg, runs[-1]["config"])) for folder, runs in find_runs(folders).items()}
    if not differing:
        return ""
    folder = min(differing, key=lambda folder: len(differing[folder]))
    return f"{folder}, differs in {', '.join(differing[folder]) or 'its settings'}"
