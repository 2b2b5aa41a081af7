"""One command of kvbench in a process of its own, and what a user must never see of it."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

HANG = 300  # seconds; a command of the loop takes about ten
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Violation(Exception):
    """Something that kvbench promises never to do."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # negative: the signal that killed it
    out: str
    err: str


def run(
    *arguments: str,
    kill: tuple[float, signal.Signals] | None = None,
    largest_file: int | None = None,
    stdout: object = subprocess.PIPE,
    environment: dict[str, str] | None = None,
) -> Ended:
    """Run `python -m kvbench ARGUMENTS`.

    kill          seconds after which a signal is sent, and which.
    largest_file  no file grows beyond so many bytes, as on a disk that is full.
    stdout        where standard output goes.
    Raises Violation for a hang, a traceback, or a crash of the interpreter.
    """

    def limit() -> None:
        if largest_file is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))

    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(environment or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "kvbench", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=env,
        preexec_fn=limit,
    )
    sent = None
    try:
        if kill is not None:
            seconds, sent = kill
            try:
                process.wait(timeout=seconds)
                sent = None  # it was faster
            except subprocess.TimeoutExpired:
                process.send_signal(sent)
        out, err = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Violation(f"hangs: {' '.join(arguments)}") from None
    ended = Ended(process.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"))
    check(ended, arguments, sent)
    return ended


def check(ended: Ended, arguments: Sequence[str], sent: signal.Signals | None) -> None:
    """Raise Violation for what no user should see."""
    shown = f"{' '.join(arguments)}\n{ended.err[-1500:]}"
    if "Traceback (most recent call last)" in ended.err + ended.out or "Exception ignored" in ended.err:
        raise Violation(f"a traceback: {shown}")
    if "\x1b[" in ended.err.replace("\x1b[1;31m", "").replace("\x1b[0m", ""):
        raise Violation(f"terminal escapes where there is no terminal: {shown}")
    allowed = {0, 1, 2, 3}
    if sent is not None:
        allowed |= {128 + sent, -sent} if sent != signal.SIGKILL else {-signal.SIGKILL}
    if ended.code not in allowed:
        raise Violation(f"exit code {ended.code}: {shown}")


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))
