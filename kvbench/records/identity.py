"""The identity of records: their folder, their setting, and the prefill that several share."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvbench.records.recorded_configuration import recorded
from kvbench.utils.files import folder_name
from kvbench.utils.hashing import digest
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.versions import raised

# Fields of a manifest that the key of every record of its folder depends on, where the manifest has them.
FOLDER_FIELDS = (
    *("model", "chat_template", *IDENTIFYING),
    *("dtype", "device", "benchmark", "data_sha256", "question", "first_token", "memory"),
)


def identity_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What all records of a folder have in common, from the manifest of one of its runs; methods and ratios differ."""
    fields = {name: manifest[name] for name in FOLDER_FIELDS if name in manifest}
    fields |= raised((manifest.get("versions") or {}).get("benchmark") or {})
    return fields | ({"records": "probes"} if recorded(manifest).probe else {})


def run_folder(benchmark: str, model: str, identity: Mapping[str, Any]) -> str:
    """The name of the folder of records with this identity."""
    prefix = "probe-" if identity.get("records") == "probes" else ""
    return folder_name(f"{prefix}{benchmark}-{model}-{digest(identity)[:8]}")


def method_key(name: str, parameters: str, ratio: float | None, budget: float | None) -> str:
    """The key of a method at a ratio or budget."""
    return json.dumps([name, parameters, ratio, budget])


def engine_key(label: str, parameters: str) -> str:
    """The key of an engine's setting."""
    return json.dumps(["engine", label, parameters])


def setting_key(record: Mapping[str, Any]) -> str:
    """The key of the setting that made a record of kind `method` or `engine`."""
    if record["kind"] == "engine":
        return engine_key(record["setting"], record["parameters"])
    return method_key(record["method"], record["parameters"], record["ratio"], record["budget"])


def setting_hash(record: Mapping[str, Any]) -> str:
    """The hash by which a manifest's `requested` knows a record's setting."""
    return digest(setting_key(record))


def requested(ratio: object, budget: object) -> str:
    """A record's ratio or budget in words; "" for a setting without either, which tables give as None or nan."""
    for name, value in (("budget", budget), ("ratio", ratio)):
        if value is not None and value == value:
            return f"{name} {value}".removesuffix(".0")
    return ""


class Classes(NamedTuple):
    """The classes of a method and of its storage, as a record's parameters name them."""

    method: str | None
    storage: str | None


# The name of FullKV's preset, which may have another storage (storage@method.full.storage=), and FullKV's classes.
FULL = "full"
FULL_CLASSES = Classes("kvbench.methods.FullKV", "kvbench.methods.Dense")


def is_full_record(record: Mapping[str, Any]) -> bool:
    """Whether a record is FullKV's: all tokens in another storage are another method's."""
    return classes_of(record["parameters"]) == FULL_CLASSES


def classes_of(parameters: str) -> Classes:
    """The classes that a method's parameters (JSON) name; neither is imported."""
    node = json.loads(parameters)
    storage = node.get("storage")
    return Classes(node.get("_target_"), storage.get("_target_") if isinstance(storage, Mapping) else None)


def prefill_of(record: Mapping[str, Any]) -> float | None:
    """The identity of the prefill that records share: its seconds, to the last digit."""
    return record.get("prefill_seconds") or None


def batch_of(record: Mapping[str, Any]) -> float | None:
    """The identity of the batch that decoded a record: the seconds of reading its question, to the last digit."""
    return record.get("question_seconds") or None


def second_pass_of(record: Mapping[str, Any]) -> float | None:
    """The identity of the second pass over the context that records share: its seconds, to the last digit."""
    return record.get("second_pass_seconds") or None
