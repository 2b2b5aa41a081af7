"""Processes that torchrun started on one command: each makes a shard of the samples on its own GPU.

torchrun sets RANK, WORLD_SIZE and LOCAL_RANK, which name the process. Process 0 shows the progress of the whole folder,
waits for the others, reports their failures, and makes the table. Processes communicate through torchrun's key-value
store; nothing else of torch.distributed is used.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from kvbench.errors import Incomplete, UserError
from kvbench.utils.console import err, out
from kvbench.utils.own_code import line_about

if TYPE_CHECKING:
    from torch.distributed import PrefixStore

    from kvbench.configuration import Configuration

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
PAUSE = 0.3  # seconds between two checks whether the others have ended


@dataclass
class Outcome:
    """A process's report when its shard has ended."""

    error: str | None = None  # in one line, if the shard ended early
    failures: dict[str, str] = field(default_factory=dict)  # key of each record that it could not make -> why


class Group:
    """The processes of one torchrun, seen from one of them. Jobs of a sweep are counted, in the same order in each."""

    def __init__(self, rank: int, world: int, local: int):
        self.rank, self.world, self.local = rank, world, local
        self.jobs = 0
        self.outcomes: dict[int, Outcome] = {}
        self.store: PrefixStore | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def shard_of(self, cfg: "Configuration") -> "Configuration":
        """The configuration of this process's shard, on its own GPU if there are GPUs and no device is chosen."""
        import torch

        if cfg.shards != 1 or cfg.shard != 0:
            raise UserError(
                f"shards={cfg.shards} shard={cfg.shard} under torchrun, which makes each of its {self.world} "
                "processes a shard: leave them out"
            )
        if cfg.model.device_map is not None:
            raise UserError(
                f"model.device_map={cfg.model.device_map} under torchrun, which gives each process one GPU: "
                "leave it out, or run without torchrun"
            )
        device, model = cfg.model.device, cfg.plain["model"]
        if device == "auto" and torch.cuda.is_available():
            if self.local >= torch.cuda.device_count():
                raise UserError(f"process {self.rank} has no GPU: this machine has {torch.cuda.device_count()}")
            model = {**model, "device": f"cuda:{self.local}"}
        elif device.startswith("cuda"):
            raise UserError(f"model.device={device} under torchrun, which gives each process one GPU: leave it out")
        return cfg.changed(model=model, shards=self.world, shard=self.rank)

    def check_timed(self, device: str) -> None:
        """Raise UserError for a measurement of time whose processes have no GPU each, but share a device."""
        if not device.startswith("cuda"):
            raise UserError(
                f"a measurement of speed under torchrun, whose {self.world} processes would slow one another: "
                "run it without torchrun"
            )

    @contextmanager
    def job(self) -> Iterator[None]:
        """A run of this process; processes other than rank 0 report their error to rank 0."""
        self.jobs += 1
        self.connect()
        try:
            yield
        except Exception as error:
            if not self.first and not isinstance(error, Alone | HandedOver):
                with suppress(Alone):  # the error itself is the one to report
                    self.hand_over(Outcome(error=line_about(error)))
            raise

    def connect(self) -> None:
        from torch import distributed

        if self.store is None:
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            with reached():
                store, _, _ = next(distributed.rendezvous("env://", timeout=timedelta(minutes=5)))
            self.store = distributed.PrefixStore(f"kvbench/{attempt}", store)

    @property
    def _shared(self) -> "PrefixStore":
        assert self.store is not None, "a job has not begun"
        return self.store

    def hand_over(self, outcome: Outcome) -> None:
        """Write this process's report for the first process."""
        with reached():
            self._shared.set(self._key("outcome", self.rank), json.dumps(asdict(outcome)))

    def made(self, records: int) -> int:
        """Count records that this process has made. Returns the number that all processes have made."""
        with reached():
            return self._shared.add(self._key("made"), records)

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Wait until all other processes have ended; `outcomes` then has their reports by rank."""
        keys = {rank: self._key("outcome", rank) for rank in range(1, self.world)}
        with reached():
            while not self._shared.check(list(keys.values())):
                time.sleep(PAUSE)  # a signal interrupts it
                meanwhile()
            self.outcomes = {rank: Outcome(**json.loads(self._shared.get(key))) for rank, key in keys.items()}

    def _key(self, *names: object) -> str:
        return "/".join(map(str, (self.jobs, *names)))


class Alone(Incomplete):
    """torchrun, whose store the processes share, is gone."""


class HandedOver(Incomplete):
    """Records that a process other than the first could not make: the first one has its report, and tells of them."""


@contextmanager
def reached() -> Iterator[None]:
    """Raise Alone for torch.distributed's error when torchrun was killed and its store does not answer."""
    from torch import distributed

    try:
        yield
    except distributed.DistError as error:
        raise Alone(
            "torchrun does not answer: it was stopped or killed. All finished records are saved, and the same command "
            "continues from there"
        ) from error


def group_of_environment() -> Group | None:
    """The group that this process belongs to; None if torchrun started no other process."""
    values = [os.environ.get(name, "") for name in VARIABLES]
    if not all(value.isdecimal() for value in values) or values[1] in ("0", "1"):
        return None
    return Group(*map(int, values))


@contextmanager
def one_speaks(group: Group | None) -> Iterator[None]:
    """Silence every process but the first, which gets their errors, and let them end with exit code 0.

    torchrun stops all processes as soon as one fails, so only the first may fail. A signal keeps its exit code.
    """
    if group is None or group.first:
        yield
        return
    err.quiet = out.quiet = True
    try:
        yield
    except SystemExit as stop:
        sys.exit(stop.code if isinstance(stop.code, int) and stop.code > 128 else 0)
