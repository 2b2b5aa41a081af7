"""Whether manifests agree with themselves, with their configuration and with the records that name them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kvbench.records.identity import identity_of, setting_hash, setting_key
from kvbench.records.pack import LEFT_OUT
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.check_configuration import configured
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.requested import Requested, hashes, requested
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong
from kvbench.utils.hashing import digest
from kvbench.utils.versions import versions

# Seconds by which the calendar's clock and a run's own count may differ: by more if it was set, or the machine slept.
CLOCK = 60.0


def keys_fit(folder: Folder) -> Check:
    """A record's key is the hash of model, data, benchmark, protocol, sample and setting."""
    identities = {run: _identity(manifest) for run, manifest in folder.manifests.items()}
    findings = Findings()
    for record, manifest in folder.with_manifests():
        findings.collect(named(record), _key, record, manifest, identities[record["run"]])
    about = "each key against model, data, protocol, sample and setting"
    return findings.judged("keys", about, Verdict.PROVEN)


def _identity(manifest: Mapping[str, Any]) -> str | None:
    """The hash that a run's keys begin with; None where a pack leaves out a part of what it is the hash of."""
    identity = identity_of(manifest)
    return None if LEFT_OUT in json.dumps(identity) else digest(identity)


def _key(record: Mapping[str, Any], manifest: Mapping[str, Any], identity: str | None) -> Iterator[Note]:
    if identity is None:
        yield missing("a path that identifies its model or data is left out of the pack: its key is not compared")
    elif record["kind"] not in ("method", "engine"):
        yield missing(f"the keys of records of kind {record['kind']} are not computed again")
    elif record["key"] != digest(identity, record["sample"], setting_key(record)):
        yield wrong("the key is not that of this model, data, sample and setting")
    elif setting_hash(record) not in manifest.get("requested", []):
        yield wrong("its run did not request this setting")


def runs_agree(folder: Folder) -> Check:
    """Manifests agree with their configuration, with each other, and with the number of their records."""
    findings = Findings()
    counts = Counter(record["run"] for record in folder.records)
    identities = {digest(identity_of(manifest)) for manifest in folder.manifests.values()}
    if len(identities) > 1:
        findings.wrong.append(f"the runs of this folder are of {len(identities)} different models, data or protocols")
    if not folder.manifests:
        findings.missing.append("there is no manifest")
    requests = {run: requested(manifest) for run, manifest in folder.manifests.items()}
    for run, manifest in folder.manifests.items():
        for compare in (configured, _requested, _timed):
            findings.collect(f"run {run}", compare, manifest)
        findings.collect(f"run {run}", _counted, manifest, counts[run])
    for record, manifest in folder.with_manifests():
        findings.collect(named(record), _of_run, record, manifest, requests[record["run"]])
    return findings.judged("manifests", "manifests against configuration, records and each other")


def _of_run(record: Mapping[str, Any], manifest: Mapping[str, Any], request: Requested) -> Iterator[Note]:
    config = recorded(manifest)
    if record["model"] != config.model.get("name"):
        yield wrong(f"its run has another model than {record['model']!r}")
    if record["question"] != manifest.get("question"):
        yield wrong(f"its run has another protocol than question={record['question']}")
    if record["kind"] == "method" and record["memory"] != manifest.get("memory", "shared"):
        yield wrong(f"its run has another mode than memory={record['memory']}")
    if record["setting"] not in manifest.get("settings", []):
        yield wrong("its run requested no setting of this name")
    setting = request.settings.get(setting_hash(record)) if record["kind"] == "method" else None
    if setting is None:
        return
    if setting.label != record["setting"]:
        yield wrong(f"its setting is {setting.label!r}")
    method = setting.method
    if record["compress_at"] != method.compress_at:
        yield wrong(f"{setting.name!r} compresses at {method.compress_at}, not at {record['compress_at']}")
    expected = 0 if record["question_tokens"] else method.full_cache_tokens
    if record["full_cache_tokens"] != expected:
        yield wrong(f"{expected} of its tokens were chosen with FullKV's cache, not {record['full_cache_tokens']}")


def _requested(manifest: Mapping[str, Any]) -> Iterator[Note]:
    request, stated = requested(manifest), (manifest.get("versions") or {}).get("settings")
    if request.problem:
        yield missing(f"its settings cannot be built here: {request.problem}")
    elif manifest.get("settings") != [*request.labels]:
        yield wrong("its settings are not those of its configuration")
    elif request.settings and manifest.get("requested") != hashes(request.settings.values(), stated or {}):
        yield wrong("the hashes of its settings are not those of its configuration")
    if recorded(manifest).engine:
        yield missing("the hashes of an engine's settings contain what it said of itself")
    elif not request.problem and stated != versions(*map(vars, request.settings.values())):
        yield missing("its methods have other versions here, or none are named")


def _counted(manifest: Mapping[str, Any], count: int) -> Iterator[Note]:
    finished = manifest.get("status") == "finished"
    names = ("records", "wanted", "there") if finished else ("wanted", "there")
    if unsaid := [name for name in names if not isinstance(manifest.get(name), int)]:
        yield missing(f"it does not say its number of records: {', '.join(unsaid)}")
        return
    claimed, wanted, existing = manifest.get("records"), manifest["wanted"], manifest["there"]
    if not isinstance(claimed, int):
        return  # completeness says that it did not finish
    if claimed < count:
        yield wrong(f"made {claimed} records, but {count} name it")
    elif claimed > count:  # a damaged line, or a copy, is set aside, and a later run makes its record again
        yield missing(f"made {claimed} records, of which {count} are there: the others were set aside or removed")
    if existing + claimed > wanted:
        yield wrong(f"{existing} records and {claimed} more are over the {wanted} that it wanted")
    if finished and existing + claimed < wanted:
        yield wrong(f"finished with {existing + claimed} of {wanted} records")


def _timed(manifest: Mapping[str, Any]) -> Iterator[Note]:
    try:
        begun, ended = (datetime.fromisoformat(manifest[name]) for name in ("started", "ended"))
        named_at = datetime.fromisoformat(manifest["run"].rpartition("-")[0])
        seconds, since_named = (ended - begun).total_seconds(), (begun - named_at).total_seconds()
    except (KeyError, ValueError, TypeError):
        yield missing("its name, `started` and `ended` do not say when it ran")
        return
    wall = manifest.get("wall_seconds")
    if seconds < -CLOCK:
        yield wrong("ended before it started")
    if not isinstance(wall, int | float):
        yield missing("it does not say how long it took")
        return
    if seconds > wall + CLOCK:  # a machine that sleeps counts no seconds
        clock = f"{seconds:.0f} s by its clock, but for {wall:.0f} s by its own count"
        yield missing(f"went on for {clock}: the clock was set, or the machine slept")
    if not -CLOCK <= since_named <= wall + CLOCK:  # named before its samples are checked
        yield wrong("started at another time than its name says")
