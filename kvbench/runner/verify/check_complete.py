"""Whether records are missing: each requested setting has every sample."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kvbench.records.identity import setting_hash
from kvbench.records.progress import covers, request_of, shards_by_request, whole
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.folder import Folder
from kvbench.runner.verify.verdict import Check, judged

NAME = "completeness"


def complete(folder: Folder) -> Check:
    """Every setting that a finished run requested has the samples that the run wanted, and no shard is missing."""
    if kinds := sorted({record["kind"] for record in folder.records} - {"method", "engine"}):
        missing = [f"records of kind {kind} are not counted" for kind in kinds]
        return judged(NAME, "records against requested settings and samples", missing=missing)
    samples = defaultdict(set)
    for record in folder.records:
        samples[setting_hash(record)].add(record["sample"])
    wrong, missing = [], []
    for run, manifest in folder.manifests.items():
        requested, wanted = manifest.get("requested") or [], manifest.get("wanted")
        config = recorded(manifest)
        if not requested or not isinstance(wanted, int):
            missing.append(f"run {run} does not say what it requested")
            continue
        if wanted % len(requested):
            wrong.append(f"run {run}: {wanted} records cannot be of {len(requested)} settings")
        each = wanted // len(requested)
        names = manifest.get("settings") or requested
        few = [
            (name, len(samples[key])) for key, name in zip(requested, names, strict=False) if len(samples[key]) < each
        ]
        lines = [f"run {run} wanted {each} samples under {name!r}, and {made} are there" for name, made in few]
        if manifest.get("status") == "finished":
            wrong += lines
        elif lines or not _went_on(manifest, folder):
            missing += [f"run {run} did not finish ({manifest.get('status')})", *lines]
        if config.limit is not None:
            missing += [] if folder.samples else [f"run {run} took the first {config.limit} samples of each task"]
    covered = {record["sample"] for record in folder.records}
    shards = shards_by_request(folder.manifests.values())
    entire = whole(shards)
    for request, begun in shards.items():  # a request that a whole one includes need not be whole itself
        if len(begun) < request.shards and not any(covers(other, request) for other in entire):
            missing.append(f"{request.shards - len(begun):,} of {request.shards:,} shards are not there")
    if folder.samples:
        wrong += [
            f"sample {name!r} has records, but is not among the run's samples" for name in covered - {*folder.samples}
        ]
        without = {*folder.samples} - covered
        (missing if missing else wrong).extend(f"sample {name!r} has no record" for name in sorted(without))
    else:
        missing.append("the run's samples are not listed")
    wrong += _uneven(folder, samples, bool(missing))
    return judged(NAME, "records against requested settings and samples", wrong, missing)


def _went_on(manifest: Mapping[str, Any], folder: Folder) -> bool:
    """Whether another run finished what this one requested, or more: in one piece, or the same shard."""
    shard, request = recorded(manifest).shard, request_of(manifest)
    for other in folder.manifests.values():
        if other.get("status") == "finished" and covers(larger := request_of(other), request):
            same_shard = larger.shards == request.shards and recorded(other).shard == shard
            if larger.shards == 1 or same_shard:
                return True
    return False


def _uneven(folder: Folder, samples: dict[str, set[str]], stopped: bool) -> list[str]:
    """Settings of one run that have equally many, but different samples."""
    uneven = []
    for run, manifest in folder.manifests.items():
        sets = {frozenset(samples[key]) for key in manifest.get("requested") or []}
        if len(sets) > 1 and not stopped and len({*map(len, sets)}) == 1:
            uneven.append(f"run {run}: its settings have different samples")
    return uneven
