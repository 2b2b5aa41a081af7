"""Records of several runs for one comparison: distinct names of settings, the same samples, a metric that all have."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.errors import UserError, unknown
from kvbench.metrics.aggregate import DISTANCES, SMALLER_IS_BETTER, with_distances
from kvbench.records.load import gather_for_command
from kvbench.report.page.labels import with_labels
from kvbench.report.page.run_data import WITHOUT, find_runs, kind_of, without_outputs
from kvbench.runner.compared_prompts import Run, check_same_prompts
from kvbench.utils.console import warn


def records_of(runs: Sequence[Path], metric: str | None) -> tuple[pd.DataFrame, str | None]:
    """The records of all runs with distinct settings, and the metric to compare; None where the runs share no metric
    whose larger values are better. Of several runs it is a score unless it is named: distances are from each run's own
    FullKV, which has the best ones whatever it answers.
    """
    folders = answering(find_runs(runs), runs)
    names = [folder.resolve().name for folder in folders]
    frames, scored, compared = [], [], []
    for folder, name in zip(folders, names, strict=True):
        if reason := without_outputs(folder):
            raise UserError(f"{folder} {reason}")
        records = gather_for_command(folder)
        compared.append(Run(folder, records))
        records, distances = with_distances(with_labels(records))
        scores_of = dict.fromkeys(
            measure for scores in records["scores"] for measure in scores if measure not in distances
        )
        scored.append([measure for measure in (*scores_of, *distances) if measure not in SMALLER_IS_BETTER])
        run = name if names.count(name) == 1 else str(folder)
        prefix = f"{run}: " if len(folders) > 1 else ""
        frames.append(records.assign(setting=prefix + records["label"]))
    shared = [measure for measure in scored[0] if all(measure in measures for measures in scored)]
    if metric is not None and metric not in shared:
        raise unknown("metric", metric, shared)
    records = _with_units(pd.concat(frames, ignore_index=True))
    _check_same_samples(records)
    check_same_prompts(compared)
    _check_same_versions(compared)
    return records, metric or next((name for name in shared if len(folders) == 1 or name not in DISTANCES), None)


def answering(folders: Sequence[Path], runs: Sequence[Path]) -> list[Path]:
    """The folders without those of probes and of speed, which a warning names.

    Such a one stays, to be refused, where it is in `runs` itself instead of in a folder of runs, and where there is no
    other. So do servers under load, which a limit on latencies would judge, and runs without any record.
    """
    named = {run.resolve() for run in runs}
    kinds = {folder: kind_of(folder) for folder in folders if folder.resolve() not in named}
    left_out = {folder: WITHOUT[kind] for folder, kind in kinds.items() if kind in ("probe", "speed")}
    if len(left_out) == len(folders):
        return [*folders]
    for folder, reason in left_out.items():
        warn(f"{folder} {reason}")
    return [folder for folder in folders if folder not in left_out]


def _with_units(records: pd.DataFrame) -> pd.DataFrame:
    """Each record with the context and unit that any record of its sample has: earlier versions recorded none."""
    known = [name for name in ("context_id", "unit") if name in records]
    of_sample = records.groupby("sample", sort=False)
    return records.assign(**{name: of_sample[name].transform("first") for name in known})


def _check_same_samples(records: pd.DataFrame) -> None:
    """Raise UserError where runs are of several benchmarks, or give one name to samples with other answers."""
    if len(benchmarks := records["benchmark"].unique()) > 1:
        raise UserError(f"runs of several benchmarks share no samples: {', '.join(benchmarks)}")
    kinds = records.assign(answers=records["answers"].map(repr)).drop_duplicates(["sample", "answers"])
    if len(several := kinds[kinds.duplicated("sample")]):
        raise UserError(f"the runs are not over the same samples: {several['sample'].iloc[0]!r} has other answers")


def _check_same_versions(runs: Sequence[Run]) -> None:
    """Warn of runs with other versions of the benchmark or its metrics: their scores may differ for that alone."""
    known = [run for run in runs if run.records["versions"].iloc[0] is not None]  # None: without a manifest
    for run in known[1:]:
        first, one, other = known[0], _versions(known[0]), _versions(run)
        if differ := [name for name in sorted({*one, *other}) if one.get(name, 1) != other.get(name, 1)]:
            pairs = ", ".join(f"{name} {one.get(name, 1)} and {other.get(name, 1)}" for name in differ)
            where = f"{first.folder} and {run.folder} were scored by other versions"
            warn(f"{where} ({pairs}): equal answers may have other scores")


def _versions(run: Run) -> dict[str, int]:
    """The versions above 1 of the benchmark and its metrics."""
    stated: dict[str, dict[str, int]] = json.loads(run.records["versions"].iloc[0])
    return stated.get("versions", {})


def named(text: str, settings: Sequence[str]) -> str:
    """The setting with this label or title (full, FullKV), with or without its run."""
    forms = {label: {label.lower(), titled(label).lower()} for label in settings}
    for label, known in forms.items():
        run, colon, rest = label.rpartition(": ")
        if colon:
            known |= {rest.lower(), titled(rest).lower(), f"{run}: {titled(rest)}".lower()}
    matching = [label for label, known in forms.items() if text.lower() in known]
    if not matching:
        raise unknown("--baseline", text, settings)
    if len(matching) > 1:
        raise UserError(f"--baseline {text!r} is in several runs: {quoted(matching)}")
    return matching[0]


def quoted(settings: Iterable[str]) -> str:
    return " or ".join(map(repr, settings))
