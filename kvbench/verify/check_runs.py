"""Whether manifests agree with themselves, with their configuration and with the records that name them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kvbench.config import DESCRIBING
from kvbench.records.recorded_configuration import recorded
from kvbench.utils.hashing import digest
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.places import PLACES
from kvbench.utils.versions import raised
from kvbench.verify.folder import Folder, named
from kvbench.verify.known_classes import engine_labels, settings_of
from kvbench.verify.verdict import Check, Verdict, judged

# Fields of a manifest that every record's key depends on, as `kvbench.runner.manifest.folder_identity` collects them.
IDENTITY = (
    *(
        "model",
        "chat_template",
        *IDENTIFYING,
        "dtype",
        "device",
        "benchmark",
        "data_sha256",
        "question",
        "first_token",
    ),
    "memory",
)
CLOCK = 60.0  # seconds by which a machine's clock may be set while a run goes on


def identity_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What all records of a folder have in common, from the manifest of one of its runs."""
    found = {name: manifest[name] for name in IDENTITY if name in manifest}
    found |= raised((manifest.get("versions") or {}).get("benchmark") or {})
    return found | ({"records": "probes"} if recorded(manifest).probe else {})


def setting_key(record: Mapping[str, Any]) -> str:
    """The hash by which a manifest's `requested` knows a record's setting."""
    return digest(_setting(record))


def _setting(record: Mapping[str, Any]) -> str:
    return json.dumps([record["method"], record["parameters"], record["ratio"], record["budget"]])


def keys_fit(folder: Folder) -> Check:
    """A record's key is the hash of model, data, benchmark, protocol, sample and setting."""
    folded = {run: digest(identity_of(manifest)) for run, manifest in folder.manifests.items()}
    wrong, missing = [], []
    for record, manifest in folder.with_manifests():
        if record["kind"] != "method":
            missing.append(f"keys of records of kind {record['kind']} are not recomputed")
        elif record["key"] != digest(folded[record["run"]], record["sample"], _setting(record)):
            wrong.append(f"{named(record)}: the key is not that of this model, data, sample and setting")
        elif setting_key(record) not in manifest.get("requested", []):
            wrong.append(f"{named(record)}: its run did not request this setting")
    return judged("keys", "each key against model, data, protocol, sample and setting", wrong, missing, Verdict.PROVEN)


def runs_agree(folder: Folder) -> Check:
    """Manifests agree with their configuration, with each other, and with the number of their records."""
    wrong, missing = [], []
    made = Counter(record["run"] for record in folder.records)
    identities = {digest(identity_of(manifest)) for manifest in folder.manifests.values()}
    if len(identities) > 1:
        wrong.append(f"the runs of this folder are of {len(identities)} different models, data or protocols")
    for run, manifest in folder.manifests.items():
        wrong += [f"run {run}: {line}" for line in (*_configured(manifest), *_counted(manifest, made[run]))]
        wrong += [f"run {run}: {line}" for line in _timed(manifest)]
        try:
            wrong += [f"run {run}: {line}" for line in _requested(manifest)]
        except ValueError as error:
            missing.append(f"run {run}: its settings cannot be built here: {error}")
        if recorded(manifest).engine:
            missing.append(f"run {run}: the hashes of an engine's settings contain what it said of itself")
    for record, manifest in folder.with_manifests():
        if record["model"] != recorded(manifest).model.get("name"):
            wrong.append(f"{named(record)}: its run has another model than {record['model']!r}")
        if record["question"] != manifest.get("question"):
            wrong.append(f"{named(record)}: its run has another protocol than question={record['question']}")
        if record["kind"] == "method" and record["memory"] != manifest.get("memory", "shared"):
            wrong.append(f"{named(record)}: its run has another mode than memory={record['memory']}")
        if record["setting"] not in manifest.get("settings", []):
            wrong.append(f"{named(record)}: its run requested no setting of this name")
    return judged("manifests", "manifests against configuration, records and each other", wrong, missing)


def _configured(manifest: Mapping[str, Any]) -> Iterator[str]:
    config = recorded(manifest)
    benchmark = {key: value for key, value in config.benchmark.items() if key not in PLACES | DESCRIBING}
    here = {key: value for key, value in (manifest.get("benchmark") or {}).items() if key not in PLACES}
    if benchmark != here:
        yield "its benchmark is not the one of its configuration"
    if config.question != manifest.get("question"):
        yield "its protocol is not the one of its configuration"
    if config.first_token != manifest.get("first_token", "full"):
        yield "its first_token is not the one of its configuration"
    if config.model.get("chat_template") != manifest.get("chat_template"):
        yield "its chat template is not the one of its configuration"


def _requested(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Raises ValueError where the settings cannot be built."""
    config = recorded(manifest)
    if config.probe:
        raise ValueError("they are probes")
    if config.engine:
        if manifest.get("settings") != engine_labels(config.engine):
            yield "its settings are not those of its configuration"
        return
    settings = settings_of(config)
    if manifest.get("settings") != [setting.label for setting in settings]:
        yield "its settings are not those of its configuration"
    if manifest.get("requested") != [digest(setting.key) for setting in settings]:
        yield "the hashes of its settings are not those of its configuration"


def _counted(manifest: Mapping[str, Any], made: int) -> Iterator[str]:
    claimed, wanted, there = (manifest.get(name) for name in ("records", "wanted", "there"))
    if isinstance(claimed, int) and claimed != made:
        yield f"made {claimed} records, but {made} name it"
    if isinstance(wanted, int) and isinstance(there, int) and isinstance(claimed, int):
        if there + claimed > wanted:
            yield f"{there} records and {claimed} more are over the {wanted} that it wanted"
        if manifest.get("status") == "finished" and there + claimed < wanted:
            yield f"finished with {there + claimed} of {wanted} records"


def _timed(manifest: Mapping[str, Any]) -> Iterator[str]:
    try:
        begun, ended = (datetime.fromisoformat(manifest[name]) for name in ("started", "ended"))
        named_at = datetime.fromisoformat(manifest["run"].rpartition("-")[0])
    except (KeyError, ValueError, TypeError):
        return
    seconds, wall = (ended - begun).total_seconds(), manifest.get("wall_seconds")
    if seconds < -CLOCK:
        yield "ended before it started"
    if isinstance(wall, int | float) and seconds > wall + CLOCK:
        yield f"went on for {seconds:.0f} s by its clock, but for {wall:.0f} s by its own count"
    if abs((begun - named_at).total_seconds()) > CLOCK:
        yield "started at another time than its name says"
