"""How far the runs of a folder are: how many of the requested records there are, and why a run ended before its end."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.records.manifest import read_manifests
from kvbench.records.recorded_configuration import recorded
from kvbench.records.store import lock_path, read_records, record_files, shard_name
from kvbench.utils.locks import held

# What a manifest must hold to say how far its run is; those of kvbench before it had a status command lack some.
ATTEMPT = {"started", "status", "config", "host", "slurm", "requested", "wanted", "there"}
SHARE = {"limit", "shard", "shards"}  # in its config


class Share(NamedTuple):
    """One shard of what was requested of a run folder."""

    shard: int
    shards: int
    made: int  # records that exist
    wanted: int  # records that were requested; 0 where that is not known
    request: dict[str, Any]  # the manifest of the first attempt at any shard
    last: dict[str, Any] | None  # that of the last attempt at this one; None: it has not begun
    alive: bool | None  # whether a process works on it; None: not known

    @property
    def state(self) -> str:
        return "not begun" if self.last is None else state(self.last, self.alive)


def shares_of(folder: Path) -> tuple[list[Share], list[Path]]:
    """Every shard of every request that no later one has taken over, and manifests that cannot be read."""
    manifests, unread = read_manifests(folder)
    damaged = [*unread]
    attempts = [one for one in manifests.values() if one.keys() >= ATTEMPT and one["config"].keys() >= SHARE]
    if len(attempts) < len(manifests):
        damaged.append(folder / "manifests")  # some are of a kvbench before it said how far a run is
    records = (record for path in record_files(folder) for record in read_records(path).records)
    made: Counter[str | None] = Counter(record.get("run") for record in records)
    shares = [
        _share(folder, shard, request, made)
        for request in requests(attempts)
        for shard in range(recorded(request[0]).shards)
    ]
    return shares, damaged


def unfinished(folder: Path, ending: str | None = None) -> str:
    """How many of the requested records a folder has, and why there are no more; "" where all are there.

    ending: the id of a run that makes no more records.
    """
    missing = [share for share in shares_of(folder)[0] if share.last is None or share.made < share.wanted]
    if not missing:
        return ""
    made, wanted = sum(share.made for share in missing), sum(share.wanted for share in missing)
    of = f"{made:,} of {wanted:,} records" if all(share.wanted for share in missing) else f"{made:,} records"
    return f"unfinished: {of}, {', '.join(dict.fromkeys(_why(share, ending) for share in missing))}"


def _why(share: Share, ending: str | None) -> str:
    """What keeps a shard from having all its records, in words."""
    if share.last is not None and share.last["run"] == ending:
        return "the others could not be made"
    if share.state == "failed" and share.last is not None:
        return f"a run failed ({share.last['error']})"
    if share.state == "finished":
        return "the others could not be made"
    words = {"running": "still running", "killed": "a run was killed", "not begun": "a shard has not begun"}
    return words.get(share.state, share.state)


def requests(attempts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The attempts, oldest first, by what they requested: settings, samples and the number of shards.

    A request is left out when a later one includes all of its records: they are counted there.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for attempt in attempts:
        config = recorded(attempt)
        key = (frozenset(attempt["requested"]), config.limit, config.shards)
        groups[key] = [*groups.pop(key, []), attempt]  # to the end: the order is that of the last attempts
    order = list(groups)
    return [groups[key] for i, key in enumerate(order) if not any(covers(later, key) for later in order[i + 1 :])]


def covers(later: tuple[Any, ...], earlier: tuple[Any, ...]) -> bool:
    (settings, limit, _), (wanted, first, _) = later, earlier
    return settings >= wanted and (limit is None or (first is not None and limit >= first))


def _share(folder: Path, shard: int, request: list[dict[str, Any]], made: Counter[str | None]) -> Share:
    shards = recorded(request[0]).shards
    attempts = [attempt for attempt in request if recorded(attempt).shard == shard]
    if not attempts:
        return Share(shard, shards, 0, 0, request[0], None, None)
    last = attempts[-1]
    alive = held(lock_path(folder, shard_name(shard, shards)))
    return Share(shard, shards, last["there"] + made[last["run"]], last["wanted"], request[0], last, alive)


def state(attempt: dict[str, Any], alive: bool | None) -> str:
    """A manifest that says running, without a process that holds the lock, is of one that was killed.

    `alive` is None where the lock cannot be read.
    """
    if attempt["status"] == "running":
        return {True: "running", False: "killed", None: "running or killed"}[alive]
    return "failed" if "error" in attempt else attempt["status"]
