"""Which loads of servers can be compared: those of one model by the same requests, sent from one machine."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kvbench.report.tables.serve_table import load_text

_UNKNOWN = float("nan")


def conditions(record: Mapping[str, Any]) -> dict[str, str]:
    """What a load was measured under, in words, as far as its record says it; a report made without kvbench does not.

    Numbers of requests may differ: they are how long it was measured.
    """
    requested = record.get("requested")
    requested = requested if isinstance(requested, dict) else {}
    tokens = requested.get("new_tokens", _UNKNOWN)
    prompts = [record.get(name) for name in ("prompts_of", "prompts_sha256")]
    stated = {
        "model": record.get("model"),
        "prompts": " ".join(part[:16] for part in prompts if isinstance(part, str)) or _UNKNOWN,
        "new tokens": "those of each prompt" if tokens is None else tokens,
        "fresh": requested.get("fresh"),
        "machine": record.get("processor"),
    }
    return {name: str(value) for name, value in stated.items() if not pd.isna(value)}


def why_apart(loads: pd.DataFrame) -> str:
    """Why loads cannot be compared: the first condition that they do not share, or a load of a setting that is there
    twice. Empty where they can."""
    values: dict[str, dict[str, None]] = {}
    for record in loads.to_dict("records"):
        for name, value in conditions(record).items():
            values.setdefault(name, {})[value] = None
    for name, several in values.items():
        if len(several) > 1:
            return f"the loads differ in {name}: {' or '.join(map(repr, several))}"
    places = [(record["setting"], load_text(record["profile"], record["rate"])) for _, record in loads.iterrows()]
    twice = next((place for place in places if places.count(place) > 1), None)
    return "" if twice is None else f"{twice[0]!r} was loaded twice with {twice[1]}"


def same_load(record: Mapping[str, Any], others: pd.DataFrame) -> pd.Series | None:
    """The first of `others` under the record's load whose known conditions are the record's; None without one."""
    load, known = load_text(record["profile"], record["rate"]), conditions(record)
    for _, other in others.iterrows():
        theirs = conditions(other)
        shared = known.keys() & theirs.keys()
        if load_text(other["profile"], other["rate"]) == load and all(known[name] == theirs[name] for name in shared):
            return other
    return None


def other_model(answers: pd.DataFrame, loads: pd.DataFrame) -> str:
    """Why answers and loads do not belong together: a setting's loads are of another model. Empty where none are."""
    for setting, group in loads.groupby("setting", sort=False):
        of_loads = {model for record in group.to_dict("records") if (model := conditions(record).get("model"))}
        of_answers = {*answers.loc[answers["setting"] == setting, "model"]}
        if of_loads and of_answers and not of_loads & of_answers:
            answered, loaded = (" or ".join(sorted(models)) for models in (of_answers, of_loads))
            return f"{setting} answered as {answered}, and was loaded as {loaded}"
    return ""
