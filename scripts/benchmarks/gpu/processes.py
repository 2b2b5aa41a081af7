"""Rows of a check, in processes apart: an illegal access to a GPU's memory ends one row, not the check.

What a row found is a file, and a further run of the same code on the same machine does not repeat it.
"""

import faulthandler
import importlib
import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from kvbench.utils.files import folder_name, write_atomically
from kvbench.utils.host import cores
from scripts.benchmarks.gpu.stages import Clock

PRELOADED = ["scripts.benchmarks.gpu.rows"]  # imported once, before processes are forked; initialises no GPU
LAST_WORDS = 1.0  # seconds that a process has to print where it is before it is killed
# What a process sends: seconds that a kernel took to compile; what a row has found so far; what it found
COMPILED, SO_FAR, RESULT = "compiled", "so far", "result"


@dataclass(frozen=True)
class Row:
    """One result of a check."""

    name: str
    work: str  # MODULE:FUNCTION, which returns a dict
    arguments: tuple = ()
    most: float = 90.0  # seconds, without those in which kernels are compiled
    shares: str = ""  # rows behind each other with the same word share a process: its models are made once
    timed: bool = False  # measures time: nothing else runs meanwhile


class Worker:
    """A process that performs rows, one after the other, until one of them ends it."""

    def __init__(self, context, threads: int | None):
        self.connection, child_end = context.Pipe()
        self.process = context.Process(target=serve, args=(child_end, threads))
        self.process.start()
        child_end.close()

    def ask(self, row: Row, seconds: float, end: Callable[[], float]) -> dict | None:
        """What a row found. If its process ended, how, and what the row had told of before; what it had told of so far
        (None: nothing) where it was not through in `seconds`, to which the time is added that kernels took to compile,
        as long as `end()`, the seconds of the whole check, allows it."""
        self.connection.send((row.work, row.arguments))
        until, so_far = time.perf_counter() + seconds, None
        while self.connection.poll(max(0.0, min(until - time.perf_counter(), end()))):
            try:
                kind, value = self.connection.recv()
            except EOFError:
                self.process.join()
                code = self.process.exitcode
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return (so_far or {}) | {"error": f"the process ended by {how}"}
            if kind == RESULT:
                return value
            if kind == COMPILED:
                until += value
            else:
                so_far = value | {"skipped": [*value.get("skipped", ()), "what comes behind"]}
        self._end()
        return so_far

    def _end(self) -> None:
        """Kill the process, which first prints where it is. Not earlier: Python may crash while it prints the frames of
        a thread that runs."""
        if self.process.pid:
            os.kill(self.process.pid, signal.SIGUSR1)
        self.process.join(LAST_WORDS)
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        with suppress(OSError):
            self.connection.send(None)
        self.connection.close()
        self.process.join()


class Rows:
    """Runs rows and keeps what they found in a folder; `stamp` is what the results depend on besides the row.

    Rows that measure no time run in `together` processes at once, each with its share of the machine's cores.
    """

    def __init__(self, folder: Path, stamp: dict, clock: Clock, together: int = 1):
        self.folder, self.stamp, self.clock, self.together = folder, stamp, clock, together
        self.left: list[str] = []  # rows that there was no time for
        self.found: dict[str, dict] = {}
        self.lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)

    def run(self, rows: Sequence[Row]) -> None:
        """Each row that has no result yet, as long as the stage has time for another one like the longest so far."""
        longest: dict[str, float] = {}
        for timed, some in groupby(rows, key=lambda row: row.timed):
            waiting, processes = iter([*some]), 1 if timed else self.together
            threads = None if processes == 1 else max(1, (cores() or 1) // processes)
            with ThreadPoolExecutor(processes) as pool:
                each = [pool.submit(self._one_by_one, waiting, threads, longest) for _ in range(processes)]
            for worker in each:
                worker.result()  # or its error
        names = dict.fromkeys([row.name for row in rows])
        self.found |= {name: self.found.pop(name) for name in names if name in self.found}  # in their order

    def _one_by_one(self, waiting: Iterator[Row], threads: int | None, longest: dict[str, float]) -> None:
        """Rows that nobody has taken yet, in one process until one of them ends it."""
        worker, shares = None, ""
        while (row := self._next(waiting)) is not None:
            kind = row.name.split("/")[0]
            if (known := self._known(row)) is not None:
                self.found[row.name] = known
                continue
            seconds = min(row.most, self.clock.left())
            if seconds <= longest.get(kind, 0.0):
                self.left.append(row.name)
                continue
            if worker and not (row.shares and row.shares == shares and worker.process.is_alive()):
                worker.close()
                worker = None
            worker, shares = worker or Worker(self.context, threads), row.shares
            started = time.perf_counter()
            result = worker.ask(row, seconds, self.clock.all_left)
            longest[kind] = max(longest.get(kind, 0.0), time.perf_counter() - started)
            self._note(row, result if result or seconds < row.most else too_long(row))
        if worker:
            worker.close()

    def _next(self, waiting: Iterator[Row]) -> Row | None:
        with self.lock:
            return next(waiting, None)

    def _note(self, row: Row, result: dict | None) -> None:
        """Keep what a row found, in the folder too unless a further run may find something else."""
        if result is None:
            self.left.append(row.name)
            return
        self.found[row.name] = result
        if skipped := result.get("skipped"):  # a further run does it again, with more time
            self.left += [f"{row.name}: {part}" for part in skipped]
        elif not result.get("again"):
            write_atomically(self._file(row), json.dumps({"stamp": self.stamp, "found": result}, default=str) + "\n")

    def _known(self, row: Row) -> dict | None:
        """The result of an earlier run of the same code on the same machine."""
        if row.name in self.found:
            return self.found[row.name]
        try:
            kept = json.loads(self._file(row).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept["found"] if kept.get("stamp") == self.stamp else None

    def _file(self, row: Row) -> Path:
        return self.folder / f"{folder_name(row.name)}.json"


def too_long(row: Row) -> dict:
    """A failure of this run: the machine may have been busy."""
    return {"error": f"took more than {row.most:.0f} s", "again": True}


_there: Connection | None = None  # in a worker: to whom it tells


def tell_so_far(results: dict) -> None:
    """Keep a row's results so far, in case the row does not finish."""
    if _there is not None:
        _there.send((SO_FAR, json.loads(json.dumps(results, default=str))))


def serve(connection, threads: int | None) -> None:
    """In a worker: perform what comes, until nothing more does."""
    global _there
    _there = connection
    if threads:
        torch.set_num_threads(threads)
    tell_of_compilations(connection)
    faulthandler.register(signal.SIGUSR1, chain=True)  # see `Worker._end`
    while (work := connection.recv()) is not None:
        connection.send((RESULT, perform(*work)))


def perform(work: str, arguments: tuple) -> dict:
    """What a row's function returns, or its error."""
    module, name = work.split(":")
    try:
        function: Callable[..., dict] = getattr(importlib.import_module(module), name)
        return json.loads(json.dumps(function(*arguments), default=str))
    except Exception as error:  # the result is a report of everything that goes wrong
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        return result | ({"again": True} if type(error).__name__ == "OutOfMemoryError" else {})  # of whom is not known


def tell_of_compilations(connection) -> None:
    """Send the seconds of each compilation of a Triton kernel, which a warm cache would save."""
    try:
        from triton import knobs
    except ImportError:
        return

    def listener(*, times, cache_hit: bool, **about) -> None:
        if not cache_hit:
            connection.send((COMPILED, 1e-6 * times.total))

    knobs.compilation.listener = listener
