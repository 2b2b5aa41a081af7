"""The page's data of a run of benchmark=serve, beside the answers of other runs on the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.papers.captions import caption
from kvbench.records.load import load_for_command
from kvbench.records.manifest import read_manifests
from kvbench.records.provenance import model_name
from kvbench.report.page.command_lines import command_lines
from kvbench.report.page.labels import as_requested
from kvbench.report.page.plain_table import plain_table
from kvbench.report.page.run_tables import number
from kvbench.report.tables.alike_loads import why_apart
from kvbench.report.tables.serve_table import load_text, notes, serve_table, serving
from kvbench.report.tables.served_table import differing, first_baseline, served, served_notes, served_table

# What a plot of the page may have across: a figure of each load, in words.
ACROSS = {"tokens_per_s": "tokens/s served", "first_token_ms_mean": "first token in ms"}


def read_serve(folder: Path, answer_folders: Sequence[Path]) -> dict[str, Any]:
    """Name, manifests, tables and points of a run of loads.

    `tables` has the run's own table as "". Where a run of `answer_folders` has the same settings, the table of both
    stands by its number.
    """
    manifests = list(read_manifests(folder)[0].values())
    loads = _labelled(folder, manifests)
    frame = serving(loads)
    prompts = f"prompts of {loads['prompts_of'].iloc[0]}" if "prompts_of" in loads else ""
    model = model_name(loads["model"].iloc[0], manifests)
    title = caption("", loads["benchmark"].iloc[0], model, "", prompts)
    methods = dict(zip(loads["setting"], loads["method"], strict=True))
    tables = {"": plain_table(serve_table(frame, title, notes(loads, frame)), frame["setting"].map(methods))}
    for place, answer_folder in enumerate(answer_folders):
        answers = _labelled(answer_folder, list(read_manifests(answer_folder)[0].values()))
        if _together(answers, loads):
            tables[str(place)] = _joined(answers, loads, title)
    return {
        "name": folder.resolve().name,
        "model": loads["model"].iloc[0],
        "tables": tables,
        "across": [across for name, words in ACROSS.items() for across in _across(loads, name, words)],
        "manifests": manifests,
        "commands": command_lines(manifests),
    }


def _labelled(folder: Path, manifests: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The records of a folder, each setting by its label."""
    records = as_requested(load_for_command(folder), manifests)
    return records.assign(setting=records["label"])


def _together(answers: pd.DataFrame, loads: pd.DataFrame) -> bool:
    """Whether scored answers of the same model and of one of the settings are there."""
    alike = answers[answers["model"].isin(loads["model"]) & answers["setting"].isin(loads["setting"])]
    return len(alike) > 0 and any(answers["scores"])


def _joined(answers: pd.DataFrame, loads: pd.DataFrame, title: str) -> dict[str, Any]:
    metric = next(name for scores in answers["scores"] for name in scores)
    baseline = first_baseline(answers)
    frame = served(answers, loads, metric, baseline)
    every = pd.concat([answers, loads])
    methods = dict(zip(every["setting"], every["method"], strict=True))
    notes = served_notes(frame, metric, baseline)
    if apart := differing(answers, loads):
        notes.append(f"{titled(apart)} answered and was loaded with other flags or another version")
    if reason := why_apart(loads):
        notes.append(f"{reason}; × baseline is over loads without this difference")
    title = f"{title} · {metric} of {answers['benchmark'].iloc[0]}"
    return plain_table(served_table(frame, metric, title, notes, repeated=True), frame["setting"].map(methods))


def _across(loads: pd.DataFrame, name: str, words: str) -> list[dict[str, Any]]:
    """For each load {text, of}: a figure by setting."""
    by_load: dict[str, dict[str, Any]] = {}
    for _, record in loads.iterrows():
        if name in record["figures"]:
            text = f"{words}, {load_text(record['profile'], record['rate'])}"
            by_load.setdefault(text, {})[titled(record["setting"])] = number(record["figures"][name])
    return [{"text": text, "of": figures} for text, figures in by_load.items()]
