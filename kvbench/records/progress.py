"""The progress of a folder's runs: how many of the requested records exist, and why a run ended early."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.records.identity import setting_hash
from kvbench.records.manifest import read_manifests
from kvbench.records.record_files import files_in, records_in
from kvbench.records.recorded_configuration import recorded
from kvbench.records.store import lock_path, shard_name
from kvbench.utils.locks import held
from kvbench.utils.text import count

# Fields of a manifest that give its run's progress; manifests of versions without a status command lack some.
ATTEMPT = {"started", "status", "config", "requested", "wanted", "there"}
SHARE = {"limit", "shard", "shards"}  # in its config
# Kinds of records from which the hashes in a manifest's `requested` follow, and the fields on which these depend.
HASHED = {"method", "speed", "engine"}
SETTING = ("kind", "setting", "method", "parameters", "ratio", "budget")
FAILED = {"failed", "finished"}  # states of shards in which a setting without a record cannot be made


class Request(NamedTuple):
    """What the processes of one command divide between them."""

    settings: frozenset[str]  # their hashes
    limit: int | None
    shards: int


class Share(NamedTuple):
    """One shard of the records that were requested of a run folder."""

    shard: int
    shards: int
    made: int  # records that exist
    wanted: int  # requested records; 0 where their number is unknown
    request: dict[str, Any]  # the manifest of the first attempt at any shard
    last: dict[str, Any] | None  # the manifest of the last attempt at this shard; None: it has not begun
    alive: bool | None  # whether a process works on it; None: unknown
    there: Mapping[str, int] | None  # the folder's records of each setting, by its hash in `requested`; None: unknown
    elsewhere: bool = False  # whether a request that was divided otherwise has made all records of this one

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
    made: Counter[str | None] = Counter()
    of_setting: Counter[tuple[Any, ...]] = Counter()
    for record in (record for path in files_in(folder) for record in records_in(path)):
        made[record.get("run")] += 1
        of_setting[tuple(record.get(name) for name in SETTING)] += 1
    there = by_hash(of_setting)
    shares = [_shares(folder, request, made, there) for request in requests(attempts)]
    unbegun = any(share.last is None for of_request in shares for share in of_request)
    every = [_shares(folder, request, made, there) for request in by_request(attempts).values()] if unbegun else []
    complete = [request_of(of_request[0].request) for of_request in every if not any(map(_lacks, of_request))]
    marked = [
        share._replace(elsewhere=any(covers(other, request_of(share.request)) for other in complete))
        for of_request in shares
        for share in of_request
    ]
    return marked, damaged


def _lacks(share: Share) -> bool:
    """Whether records of a share may be missing: of one that has not begun, their number is unknown."""
    return not share.elsewhere if share.last is None else share.made < share.wanted


def by_hash(of_setting: Mapping[tuple[Any, ...], int]) -> Counter[str] | None:
    """Numbers of records by the hashes of their settings instead of SETTING; None for records that do not say these."""
    if any(kind not in HASHED for kind, *_ in of_setting):
        return None
    numbers: Counter[str] = Counter()
    for values, number in of_setting.items():
        numbers[setting_hash(dict(zip(SETTING, values, strict=True)))] += number
    return numbers


def unfinished(folder: Path, ending: str | None = None) -> str:
    """How many of the requested records a folder has, and why there are no more; "" where all exist.

    Settings that failed without a record are in no table and are only counted, except those of the run that is ending.
    ending: the id of the run that is ending now.
    """
    shares = shares_of(folder)[0]
    ended = {key for share in shares if share.last and share.last["run"] == ending for key in share.last["requested"]}
    failed = [_failed(share) - ended for share in shares]
    shown = [_shown(share, settings) for share, settings in zip(shares, failed, strict=True)]
    missing = [share for share in filter(None, shown) if _lacks(share)]
    words = []
    if missing:
        made, wanted = sum(share.made for share in missing), sum(share.wanted for share in missing)
        records = f"{made:,} of {wanted:,} records" if all(share.wanted for share in missing) else f"{made:,} records"
        words.append(f"unfinished: {records}, {', '.join(dict.fromkeys(_why(share, ending) for share in missing))}")
    if lost := set().union(*failed):
        words.append(f"{count(len(lost), 'setting')} failed: kvbench status {shlex.quote(str(folder))}")
    return " · ".join(words)


def _failed(share: Share) -> set[str]:
    """The hashes of the share's settings that have no record and that no run still makes."""
    if share.there is None or share.state not in FAILED:
        return set()
    return set(share.request["requested"]) - share.there.keys()


def _shown(share: Share, failed: set[str]) -> Share | None:
    """The share without those of its settings that failed; None if it has no others.

    Of the others, later requests may have made the records.
    """
    if share.there is None or share.state not in FAILED:
        return share
    requested = set(share.request["requested"])
    if not (shown := requested - failed):
        return None
    each = share.wanted // len(requested)
    made = share.made
    if share.shards == 1:
        made = sum(min(each, share.there.get(setting, 0)) for setting in shown)
    return share._replace(made=made, wanted=each * len(shown))


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
    groups = by_request(attempts)
    order = list(groups)
    return [groups[key] for i, key in enumerate(order) if not any(covers(later, key) for later in order[i + 1 :])]


def by_request(attempts: Iterable[dict[str, Any]]) -> dict[Request, list[dict[str, Any]]]:
    """The attempts at each request, in the order of the requests' last attempts."""
    groups: dict[Request, list[dict[str, Any]]] = {}
    for attempt in attempts:
        key = request_of(attempt)
        groups[key] = [*groups.pop(key, []), attempt]
    return groups


def request_of(manifest: Mapping[str, Any]) -> Request:
    """The request of a run, of no settings where its manifest does not say them."""
    config = recorded(manifest)
    return Request(frozenset(manifest.get("requested") or []), config.limit, config.shards)


def shards_by_request(manifests: Iterable[Mapping[str, Any]]) -> dict[Request, set[int]]:
    """The requests of runs, each with the numbers of its shards that these runs are."""
    shards: dict[Request, set[int]] = {}
    for manifest in manifests:
        numbers, config = shards.setdefault(request_of(manifest), set()), recorded(manifest)
        if config.shard < config.shards:
            numbers.add(config.shard)
    return shards


def whole(shards: Mapping[Request, Collection[int]]) -> list[Request]:
    """The requests of `shards_by_request` with all of their shards."""
    return [request for request, numbers in shards.items() if len(numbers) == request.shards]


def covers(other: Request, request: Request) -> bool:
    """Whether a request includes all settings and samples of another, however both were split."""
    most, limit = other.limit, request.limit
    return other.settings >= request.settings and (most is None or (limit is not None and most >= limit))


def _shares(
    folder: Path, request: list[dict[str, Any]], made: Counter[str | None], there: Mapping[str, int] | None
) -> list[Share]:
    return [_share(folder, shard, request, made, there) for shard in range(recorded(request[0]).shards)]


def _share(
    folder: Path,
    shard: int,
    request: list[dict[str, Any]],
    made: Counter[str | None],
    there: Mapping[str, int] | None,
) -> Share:
    shards = recorded(request[0]).shards
    attempts = [attempt for attempt in request if recorded(attempt).shard == shard]
    if not attempts:
        return Share(shard, shards, 0, 0, request[0], None, None, there)
    last = attempts[-1]
    alive = held(lock_path(folder, shard_name(shard, shards)))
    return Share(shard, shards, last["there"] + made[last["run"]], last["wanted"], request[0], last, alive, there)


def state(attempt: dict[str, Any], alive: bool | None) -> str:
    """A run's status; killed where its manifest says running and no process holds the lock.

    `alive` is None where the lock cannot be read.
    """
    if attempt["status"] == "running":
        return {True: "running", False: "killed", None: "running or killed"}[alive]
    return "failed" if "error" in attempt else attempt["status"]
