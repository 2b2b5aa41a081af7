"""Labels of settings, distinct where records of one folder share a name but differ in a method's parameters, or in what
was requested: a ratio of 1 and a budget of 1 token have one name."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kvbench.configuration.conf import flat
from kvbench.records.consistency import of_setting
from kvbench.records.identity import FULL, FULL_CLASSES, classes_of, requested

_FULL_PARAMETERS = json.dumps({"_target_": FULL_CLASSES.method, "storage": {"_target_": FULL_CLASSES.storage}})


class Variant(NamedTuple):
    """A setting, one of the sets of parameters (JSON) that have its name, and its request, as `requested` gives it."""

    setting: str
    parameters: str
    request: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Variant":
        return cls(record["setting"], record["parameters"], requested(record.get("ratio"), record.get("budget")))


def with_labels(records: pd.DataFrame, order: Sequence[str] = ()) -> pd.DataFrame:
    """`records` with the column label: the setting, and the parameters that differ where several sets have its name.

    Rows are sorted by label: first the settings of `order`, then the others in order of appearance. A method that is
    named as FullKV and has another storage, or an earlier version, gets its label: no table or figure takes it for
    FullKV, the baseline.
    """
    variants = [Variant.of(record) for record in records[of_setting(records)].to_dict("records")]
    label = labels_of(variants, order)
    records = records.assign(label=[label[variant] for variant in variants])
    if "method" in records:
        full = records["method"] == FULL
        newest = max(filter(_is_full, records.loc[full, "parameters"].unique()), key=_versions, default=None)
        records["method"] = records["method"].mask(full & (records["parameters"] != newest), records["label"])
    place = {name: i for i, name in enumerate(label.values())}
    return records.sort_values("label", key=lambda labels: labels.map(place), kind="stable", ignore_index=True)


def labels_of(variants: Iterable[Variant], order: Sequence[str] = ()) -> dict[Variant, str]:
    """The label of each variant; first those of the settings of `order`."""
    named: dict[str, dict[Variant, None]] = {setting: {} for setting in order}
    for variant in variants:
        named.setdefault(variant.setting, {})[variant] = None
    labels = {}
    for setting, every in named.items():
        added = _added(setting, list(dict.fromkeys(variant.parameters for variant in every)))
        several = len({variant.request for variant in every}) > 1
        for variant in every:
            labels[variant] = setting + added[variant.parameters] + f" ({variant.request})" * several
    return labels


def _added(setting: str, sets: Sequence[str]) -> dict[str, str]:
    """For each set of parameters what a label adds to the setting's name."""
    others = [] if setting != FULL else [x for x in sets if not _is_full(x)]
    named = [parameters for parameters in sets if parameters not in others]
    added = dict(zip(named, differences(named), strict=True))
    return added | {parameters: differences([_FULL_PARAMETERS, parameters])[1] for parameters in others}


def _is_full(parameters: str) -> bool:
    return classes_of(parameters) in (FULL_CLASSES, (None, None))


def _versions(parameters: str) -> int:
    """The sum of the versions that the parameters name, each of which only rises."""
    named = json.loads(parameters).get("versions")
    return sum(version for version in named.values() if isinstance(version, int)) if isinstance(named, Mapping) else 0


def as_requested(records: pd.DataFrame, manifests: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """`with_labels` in the order of the settings that a run's manifests name."""
    return with_labels(records, [setting for manifest in manifests for setting in manifest.get("settings", [])])


def differences(sets: Sequence[str]) -> list[str]:
    """For each set of parameters (JSON) its parameters that differ among sets, in parentheses; empty for one set."""
    if len(sets) == 1:
        return [""]
    every = [flat(json.loads(parameters)) for parameters in sets]
    words = [
        [f"{name}={leaves[name]}" if name in leaves else f"default {name}" for leaves in every]
        for name in dict.fromkeys(name for leaves in every for name in leaves)
    ]
    differ = [of_name for of_name in words if len({*of_name}) > 1]
    return [" (" + ", ".join(of_name[i] for of_name in differ) + ")" for i in range(len(sets))]


def differing(sets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each of several mappings the leaves in which they differ, by dotted name; None for one that it lacks."""
    every = [flat(mapping) for mapping in sets]
    names = dict.fromkeys(name for leaves in every for name in leaves)
    differ = [name for name in names if len({json.dumps(leaves.get(name)) for leaves in every}) > 1]
    return [{name: leaves.get(name) for name in differ} for leaves in every]
