"""The progress of a folder's runs: how many of the requested records exist, and why a run ended early."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.records.manifest import read_manifests
from kvbench.records.recorded_configuration import recorded
from kvbench.records.store import lock_path, read_records, record_files, shard_name
from kvbench.utils.locks import held

# Fields of a manifest that give its run's progress; manifests of versions without a status command lack some.
ATTEMPT = {"started", "status", "config", "requested", "wanted", "there"}
SHARE = {"limit", "shard", "shards"}  # in its config


class Share(NamedTuple):
    """One shard of the records that were requested of a run folder."""

    shard: int
    shards: int
    made: int  # records that exist
    wanted: int  # requested records; 0 where their number is unknown
    request: dict[str, Any]  # the manifest of the first attempt at any shard
    last: dict[str, Any] | None  # the manifest of the last attempt at this shard; None: it has not begun
    alive: bool | None  # whether a process works on it; None: unknown

    @property
    def state(self) -> str:
        return "not begun" if self.last is None else state(self.last, self.alive)


def shares_of(folder: Path) -> tuple[list[Share], list[Path]]:
    """Every shard of every request that no later request covers, and manifests that cannot be read."""
    manifests, unread = read_manifests(folder)
    damaged = [*unread]
    attempts = [m for m in manifests.values() if m.keys() >= ATTEMPT and m["config"].keys() >= SHARE]
    if len(attempts) < len(manifests):
        damaged.append(folder / "manifests")  # some are of versions that did not record progress
    records = (record for path in record_files(folder) for record in read_records(path).records)
    made: Counter[str | None] = Counter(record.get("run") for record in records)
    shares = [
        _share(folder, shard, request, made)
        for request in requests(attempts)
        for shard in range(recorded(request[0]).shards)
    ]
    return shares, damaged


def unfinished(folder: Path, ending: str | None = None) -> str:
    """How many of the requested records a folder has, and why there are no more; "" where all exist.

    ending: the id of the run that is ending now.
    """
    missing = [share for share in shares_of(folder)[0] if share.last is None or share.made < share.wanted]
    if not missing:
        return ""
    made, wanted = sum(share.made for share in missing), sum(share.wanted for share in missing)
    records = f"{made:,} of {wanted:,} records" if all(share.wanted for share in missing) else f"{made:,} records"
    return f"unfinished: {records}, {', '.join(dict.fromkeys(_why(share, ending) for share in missing))}"


def _why(share: Share, ending: str | None) -> str:
    """Why a shard lacks records, in words."""
    if share.last is not None and share.last["run"] == ending:
        return "the others could not be made"
    if share.state == "failed" and share.last is not None:
        return f"a run failed ({share.last['error']})"
    if share.state == "finished":
        return "the others could not be made"
    words = {"running": "still running", "killed": "a run was killed", "not begun": "a shard has not begun"}
    return words.get(share.state, share.state)


def requests(attempts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The attempts, oldest first, grouped by the settings, samples and number of shards that they requested.

    A request whose records a later one includes is left out: they are counted there.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for attempt in attempts:
        config = recorded(attempt)
        key = (frozenset(attempt["requested"]), config.limit, config.shards)
        groups[key] = [*groups.pop(key, []), attempt]  # to the end: requests are in the order of their last attempts
    order = list(groups)
    return [groups[key] for i, key in enumerate(order) if not any(covers(later, key) for later in order[i + 1 :])]


def covers(later: tuple[Any, ...], earlier: tuple[Any, ...]) -> bool:
    (settings, limit, _), (earlier_settings, earlier_limit, _) = later, earlier
    return settings >= earlier_settings and (limit is None or (earlier_limit is not None and limit >= earlier_limit))


def _share(folder: Path, shard: int, request: list[dict[str, Any]], made: Counter[str | None]) -> Share:
    shards = recorded(request[0]).shards
    attempts = [attempt for attempt in request if recorded(attempt).shard == shard]
    if not attempts:
        return Share(shard, shards, 0, 0, request[0], None, None)
    last = attempts[-1]
    alive = held(lock_path(folder, shard_name(shard, shards)))
    return Share(shard, shards, last["there"] + made[last["run"]], last["wanted"], request[0], last, alive)


def state(attempt: dict[str, Any], alive: bool | None) -> str:
    """A run's status; killed where its manifest says running and no process holds the lock.

    `alive` is None where the lock cannot be read.
    """
    if attempt["status"] == "running":
        return {True: "running", False: "killed", None: "running or killed"}[alive]
    return "failed" if "error" in attempt else attempt["status"]
