"""Rows of a check, each in a process of its own: an illegal access to a GPU's memory ends one row, not the check.

What a row found is a file, and a further run of the same code on the same machine does not repeat it.
"""

import importlib
import json
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.utils.files import folder_name, write_atomically
from scripts.benchmarks.gpu.stages import Clock

PRELOADED = ["scripts.benchmarks.gpu.rows"]  # imported once, before processes are forked; initialises no GPU


@dataclass(frozen=True)
class Row:
    """One result of a check."""

    name: str
    work: str  # MODULE:FUNCTION, which returns a dict
    arguments: tuple = ()
    most: float = 90.0  # seconds


class Rows:
    """Runs rows and keeps what they found in a folder; `stamp` is what the results depend on besides the row."""

    def __init__(self, folder: Path, stamp: dict, clock: Clock):
        self.folder, self.stamp, self.clock = folder, stamp, clock
        self.left: list[str] = []  # rows that there was no time for
        self.found: dict[str, dict] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)

    def run(self, rows: Sequence[Row]) -> None:
        """Each row that has no result yet, as long as there is time for another one like the longest so far."""
        kinds: dict[str, float] = {}
        for row in rows:
            kind = row.name.split("/")[0]
            if (known := self._known(row)) is not None:
                self.found[row.name] = known
                continue
            seconds = min(row.most, self.clock.all_left())
            if seconds <= kinds.get(kind, 0.0):
                self.left.append(row.name)
                continue
            before = self.clock.all_left()
            result = self._result(row, seconds)
            kinds[kind] = max(kinds.get(kind, 0.0), before - self.clock.all_left())
            if result is None:
                self.left.append(row.name)
                continue
            self.found[row.name] = result
            if skipped := result.get("skipped"):  # a further run does it again, with more time
                self.left += [f"{row.name}: {part}" for part in skipped]
                continue
            write_atomically(self._file(row), json.dumps({"stamp": self.stamp, "found": result}, default=str) + "\n")

    def _result(self, row: Row, seconds: float) -> dict | None:
        """What the row's process returned or how it ended; None where the time of the check was up first."""
        here, there = self.context.Pipe(duplex=False)
        process = self.context.Process(target=perform, args=(there, row.work, row.arguments))
        process.start()
        there.close()
        try:
            arrived = here.poll(seconds)
            result = here.recv() if arrived else None
        except EOFError:
            result = None
        if not arrived:
            process.kill()
        process.join()
        if result is not None:
            return result
        if not arrived:
            return None if seconds < row.most else {"error": f"took more than {row.most:.0f} s"}
        code = process.exitcode
        return {"error": f"the process ended by {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"}

    def _known(self, row: Row) -> dict | None:
        """The result of an earlier run of the same code on the same machine."""
        try:
            kept = json.loads(self._file(row).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept["found"] if kept.get("stamp") == self.stamp else None

    def _file(self, row: Row) -> Path:
        return self.folder / f"{folder_name(row.name)}.json"


def perform(connection, work: str, arguments: tuple) -> None:
    """In the row's process: send what its function returns, or its error."""
    module, name = work.split(":")
    try:
        function: Callable[..., dict] = getattr(importlib.import_module(module), name)
        result = json.loads(json.dumps(function(*arguments), default=str))
    except Exception as error:  # the result is a report of everything that goes wrong
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    connection.send(result)
    connection.close()
