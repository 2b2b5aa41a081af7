"""A server that kvbench starts by the user's command and ends with the block."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvbench.engines.base import Gone
from kvbench.engines.processes import kill_group, last_line

START = 1800.0  # seconds for a server to load its model
PAUSE = 0.5  # seconds between two attempts to reach it


@contextmanager
def started(command: str, answers: Callable[[], bool]) -> Iterator[None]:
    """The program of a command line, without a shell, from its first answer to the end of the block.

    Raises Gone if a server answers already, or if the program cannot be started, ends, or does not answer in time.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:  # an open quote
        raise Gone(f"{command!r} is not a command line: {error}") from error
    if not words:
        raise Gone("it is empty: the command of a server is needed")
    if answers():
        raise Gone("another server answers there already: its answers would be taken for the started server's")
    with tempfile.TemporaryDirectory(prefix="kvbench-server-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches only the run, which ends the server
                )
            except OSError as error:
                raise Gone(f"{words[0]} cannot be started: {error.strerror}") from error
        try:
            _wait(process, log, answers)
            yield
        finally:
            kill_group(process)  # with its workers


def _wait(process: "subprocess.Popen[bytes]", log: Path, answers: Callable[[], bool]) -> None:
    end = time.monotonic() + START
    while not answers():
        if (code := process.poll()) is not None:
            last = last_line(log)[:300]
            raise Gone(f"the server ended with exit code {code}" + (f": {last}" if last else ""))
        if time.monotonic() > end:
            raise Gone(f"the server did not answer within {START:g} s")
        time.sleep(PAUSE)
