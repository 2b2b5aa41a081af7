"""The page's data of one run's folder, as plain lists and dicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.errors import UserError, no_folder
from kvbench.metrics.aggregate import bounds, measured, tasks_of, units, with_distances
from kvbench.metrics.bootstrap import OF_SCORES
from kvbench.papers.captions import caption
from kvbench.records.load import PROPERTIES, load_for_command
from kvbench.records.manifest import read_manifests
from kvbench.records.progress import unfinished
from kvbench.records.provenance import dtype, model_name
from kvbench.records.record_files import files_in, records_in
from kvbench.records.samples import read_samples
from kvbench.records.served_bytes import name_of, note_of, served_bytes
from kvbench.records.store import RECORDS, record_files
from kvbench.report.page import run_tables
from kvbench.report.page.command_lines import command_lines
from kvbench.report.page.frontier_data import read_frontier
from kvbench.report.page.labels import as_requested
from kvbench.report.tables.run_table import REMARKS
from kvbench.utils.text import count

# Kinds of records without answers.
WITHOUT = {
    "probe": "is a run of probes: no outputs to show, see its figures",
    "speed": "is a run of benchmark=speed: no answers to compare, see its table and kvbench report",
    "serve": "is a run of servers under load: no answers to show, see its table and kvbench served",
}
CHUNK = 256  # records whose layers the page parses together, once one of them is opened


def read_run(folder: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    """A run for the page, and the layers of its records in chunks (see `_layers`)."""
    manifests = list(read_manifests(folder)[0].values())
    records = load_for_command(folder)
    frame = as_requested(records, manifests)
    scored = list(dict.fromkeys(name for scores in frame["scores"] for name in scores))
    frame, distances = with_distances(frame)
    frame, metrics = measured(frame, [*scored, *distances])
    samples = frame.drop_duplicates("sample")
    rows = read_samples(folder)
    # of the records as they are: tables add columns, whose names a property may have
    own = records.drop_duplicates("sample").set_index("sample").loc[samples["sample"]]
    of_sample = _properties(own, rows)
    number = {sample: i for i, sample in enumerate(samples["sample"])}
    labels = list(frame["label"].unique())
    return {
        "name": folder.resolve().name,
        "model": frame["model"].iloc[0],
        "facts": _facts(frame, manifests),
        "caption": _caption(frame, manifests, len(samples), len(labels), unfinished(folder)),
        "bytes": name_of(frame),  # of r_bytes, which is as served
        "remarks": {column: list(remark) for column, remark in REMARKS.items()},
        "metrics": metrics,
        "distances": distances,
        "bounded": [name for name in metrics if bounds(name) == OF_SCORES],
        "settings": run_tables.settings(frame, metrics),
        "differences": run_tables.differences(frame, metrics[0]),
        "tasks": run_tables.tasks(frame, metrics[0]),
        "heatmap": run_tables.heatmap(frame, scored),
        "frontier": read_frontier(folder),
        "properties": list(of_sample),
        "samples": _sample_columns(samples, of_sample, rows),
        "records": {
            "sample": [number[sample] for sample in frame["sample"]],
            "setting": [labels.index(label) for label in frame["label"]],
            "prediction": frame["prediction"].tolist(),
            "scores": {name: [run_tables.number(scores.get(name)) for scores in frame["scores"]] for name in metrics},
            **{
                name: [run_tables.number(x) for x in _column(frame, name)]
                for name in ("r1", "r2", "r3", "r", "close_call", "close_cuts")
            },
            "r_bytes": [run_tables.number(x) for x in served_bytes(frame)],
        },
        "chunk": CHUNK,
        "manifests": manifests,
        "commands": command_lines(manifests),
    }, _layers(frame)


def _facts(frame: pd.DataFrame, manifests: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The facts that distinguish runs: benchmark, model, dtype, question and memory."""
    dtypes = sorted({name for manifest in manifests if (name := dtype(manifest))})
    facts = {name: str(frame[name].iloc[0]) for name in ("benchmark", "model", "question")}
    facts["model"] = model_name(facts["model"], manifests)
    facts |= {"memory": next((str(value) for value in _column(frame, "memory") if isinstance(value, str)), "engine")}
    return facts | {"dtype": ", ".join(dtypes).replace("torch.", "")}


def _caption(
    frame: pd.DataFrame, manifests: Sequence[dict[str, Any]], samples: int, settings: int, unfinished: str
) -> str:
    first = frame.iloc[0]
    facts = _facts(frame, manifests)
    return caption(
        unfinished,
        first["benchmark"],
        facts["model"],
        facts["dtype"],
        f"question {first['question']} when compressing",
        *{f"first_token={manifest['first_token']}" for manifest in manifests if "first_token" in manifest},
        note_of(frame) or "",
        "" if facts["memory"] in ("shared", "engine") else f"memory {facts['memory']}",
        count(samples, "sample"),
        count(settings, "setting"),
        count(len(frame), "record"),
    )


def _properties(samples: pd.DataFrame, rows: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Properties in which samples differ (task, length, depth …), a value per sample; and the prompt's tokens."""
    names = dict.fromkeys(name for row in rows.values() for name in row.get("meta", {})) or PROPERTIES
    columns = {name: samples[name] for name in names if name in samples}
    return {
        name: [run_tables.plain(value) for value in column]
        for name, column in columns.items()
        if column.map(lambda value: isinstance(value, str | int | float)).all() and column.nunique() > 1
    } | {"tokens": samples["prompt_tokens"].tolist()}


def _sample_columns(
    samples: pd.DataFrame, of_sample: dict[str, list[Any]], rows: dict[str, dict[str, Any]]
) -> dict[str, list[Any]]:
    """Prompts, answers and properties, a list with a value per sample each; prompts are empty in packs. `task` is what
    scores are means over, where samples have several, and "" of one without."""
    tasks = tasks_of(samples)
    stored = [rows.get(sample, {}) for sample in samples["sample"]]
    return {
        "id": samples["sample"].tolist(),
        "answers": samples["answers"].tolist(),
        "evidence": [row.get("evidence") or [] for row in stored],
        "end": [row.get("prompt_end", "") for row in stored],
        "characters": [row.get("prompt_characters", 0) for row in stored],
        "question": [row.get("question", "") for row in stored],
        "prefix": [row.get("prefix", "") for row in stored],
        **{f"property {name}": values for name, values in of_sample.items()},
        **({"task": tasks.tolist()} if tasks.nunique() > 1 else {}),
        **({"context": units(samples).tolist()} if {"context_id", "unit"} & {*samples} else {}),
    }


def _layers(frame: pd.DataFrame) -> list[list[Any]]:
    """For each record the share of tokens that each layer kept, their positions, and the heads' shares, in chunks.

    Positions are encoded as `cache.kept_positions` does; null for records without the field, and for layers whose
    entries have no position. Shares of heads are null for layers, and records, whose heads keep equally many tokens.
    """
    shares = [
        [round(kept / n, 4) for kept in layers or []]
        for layers, n in zip(_lists(frame, "kept_per_layer"), frame["prompt_tokens"], strict=True)
    ]
    positions, counts = (_lists(frame, name) for name in ("kept_positions", "kept_per_head"))
    heads = [
        of_record and [of_layer and [round(kept / n, 4) for kept in of_layer] for of_layer in of_record]
        for of_record, n in zip(counts, frame["prompt_tokens"], strict=True)
    ]
    rows = [list(row) for row in zip(shares, positions, heads, strict=True)]
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]


def _column(frame: pd.DataFrame, name: str) -> list[Any]:
    """A column's values; None for each record if no record has it: records of engines lack the fields of caches."""
    return frame[name].tolist() if name in frame else [None] * len(frame)


def _lists(frame: pd.DataFrame, name: str) -> list[list[Any] | None]:
    """A column of lists; None for records without it."""
    return [value if isinstance(value, list) else None for value in _column(frame, name)]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and directly below the others, each once. Raises UserError for a path without.

    A pack below a folder is left out where the folder has its run too.
    """
    runs: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise no_folder(path)
        inside = (
            [path]
            if files_in(path)
            else _without_packs_of([p for p in sorted(path.iterdir()) if p.is_dir() and files_in(p)])
        )
        if not inside:
            raise UserError(f"{path} holds no {RECORDS}, nor does any folder in it")
        for folder in inside:
            runs.setdefault(folder.resolve(), folder)
    return list(runs.values())


def _without_packs_of(folders: Sequence[Path]) -> list[Path]:
    """The folders without packs of the others."""
    packs = [folder for folder in folders if not record_files(folder)]
    known = {run for folder in folders if folder not in packs for run in read_manifests(folder)[0]} if packs else set()
    return [folder for folder in folders if folder not in packs or not {*read_manifests(folder)[0]} <= known]


def kind_of(folder: Path) -> str | None:
    """The kind of a run's records: method, probe, speed, engine or serve; None before the first."""
    records = (record for path in files_in(folder) for record in records_in(path))
    return next((record["kind"] for record in records), None)


def without_page(folder: Path) -> str:
    """Why the page cannot show a run; empty where it can."""
    return "" if kind_of(folder) in ("serve", "speed") else without_outputs(folder)


def without_outputs(folder: Path) -> str:
    """Why a run has no answers: it has no record yet, or is of a kind without them; empty where it has."""
    kind = kind_of(folder)
    if kind is None:
        return "holds no record yet: the same command again makes them"
    return WITHOUT.get(kind, "")
