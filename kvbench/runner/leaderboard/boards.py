"""Boards of comparable submissions: one for each model, benchmark, data and version of the metrics."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvbench.records.served_bytes import name_of, note_of, served_bytes
from kvbench.report.page.labels import differing, with_labels
from kvbench.report.tables.run_table import summarise
from kvbench.report.tables.text_table import MISSING
from kvbench.runner.leaderboard.submissions import Submission
from kvbench.utils.hashing import digest
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.text import short_hashes

# Provenance in which the records of a board agree, beside the versions of the benchmark and its metrics. Versions of
# methods are among a setting's parameters, and distinguish settings of a board.
SAME = ("weights", "chat_template", *IDENTIFYING, "dtype", "data_sha256")


@dataclass(frozen=True)
class Board:
    """Settings of one or several submissions over the same samples of a benchmark, answered by one model.

    settings  a row each, with the columns of `summarise` and submission (its number), label, kind, measure (the
              score's name), score and whole (whether it has all of the board's samples); r_bytes is as served
    about     a note on r_bytes, where it needs one
    size      what tables call it
    """

    model: str
    benchmark: str
    facts: str  # further distinctions
    measure: str
    samples: int
    settings: pd.DataFrame
    about: str | None = None
    size: str = "r_bytes"

    @property
    def title(self) -> str:
        """Unique among the boards that were made together."""
        return f"{self.model}, {self.benchmark}, {self.facts}"


def boards(submissions: Sequence[Submission]) -> list[Board]:
    """The boards of all submissions, in order of model and benchmark."""
    parts: dict[str, list[pd.DataFrame]] = {}
    keys: dict[str, Mapping[str, Any]] = {}
    for number, submission in enumerate(submissions):
        for run, records in submission.records.groupby("run", sort=False):
            properties = identity(records.iloc[0], submission.manifests[run])
            key = digest(properties)
            keys[key] = properties
            parts.setdefault(key, []).append(records.assign(submission=number))
    facts = dict(zip(keys, facts_of(list(keys.values())), strict=True))
    all_boards = [_board(keys[key], facts[key], pd.concat(frames, ignore_index=True)) for key, frames in parts.items()]
    return sorted(all_boards, key=lambda board: board.title)


def identity(record: pd.Series, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What all records of a board have in common."""
    benchmark = {key: value for key, value in manifest["benchmark"].items() if key not in DESCRIBING}
    return {
        "model": record["model"],
        "benchmark": record["benchmark"],
        "question": manifest["question"],
        "first_token": manifest.get("first_token", "full"),
        "configuration": benchmark,
        **{name: record[name] for name in SAME},
        **json.loads(record["versions"]),
    }


def facts_of(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """The properties that distinguish each board: question, a first token that is not the prefill's, and dtype; and
    others if those are equal."""
    names = [(properties["model"], properties["benchmark"], _protocol(properties)) for properties in identities]
    facts = [name[-1] for name in names]
    for name in dict.fromkeys(names):
        places = [i for i, other in enumerate(names) if other == name]
        if len(places) > 1:
            for i, more in zip(places, differing([identities[i] for i in places]), strict=True):
                facts[i] += f" ({'; '.join(_words(fact, value) for fact, value in more.items())})"
    return facts


def _protocol(properties: Mapping[str, Any]) -> str:
    first = "" if properties["first_token"] == "full" else f"first token {properties['first_token']}"
    dtype = str(properties["dtype"]).removeprefix("torch.")
    return ", ".join(filter(None, (f"question {properties['question']}", first, dtype)))


def _words(fact: str, value: object) -> str:
    """`lengths 1024, 2048`; a version that is not named is the first."""
    group, _, versioned = fact.partition(".")
    if group == "versions":
        return f"version {value or 1} of {versioned}"
    name = fact.removeprefix("configuration.").removesuffix("_sha256")
    text = ", ".join(map(str, value)) if isinstance(value, list) else MISSING if value is None else str(value)
    return f"{name} {short_hashes(text)}"


def _board(properties: Mapping[str, Any], facts: str, records: pd.DataFrame) -> Board:
    labelled = with_labels(records)
    measure = next(name for scores in labelled["scores"] for name in scores)  # without an answer there is none
    labelled = labelled[[measure in scores for scores in labelled["scores"]]]
    samples = labelled["sample"].nunique()
    rows = []
    for number, group in labelled.groupby("submission"):
        summary = summarise(group.assign(setting=group["label"]), [measure])
        summary["r_bytes"] = summary["setting"].map(served_bytes(group).groupby(group["label"]).mean())
        kinds = group.drop_duplicates("label").set_index("label")["kind"]
        rows.append(summary.assign(submission=number, kind=summary["setting"].map(kinds)))
    settings = pd.concat(rows, ignore_index=True)
    settings = settings.rename(columns={measure: "score", "setting": "label"}).assign(measure=measure)
    settings["whole"] = settings["samples"] == samples
    size = name_of(labelled)
    return Board(
        properties["model"], properties["benchmark"], facts, measure, samples, settings, note_of(labelled), size
    )
