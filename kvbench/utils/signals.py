"""Signals that stop a run: at once, with complete records and a manifest that names the signal."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None  # what signal.getsignal returns

# The last two are a batch system's warning before the time limit: `sbatch --signal`, and submitit's SIGUSR2.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stopped(BaseException):
    """A signal stopped the run. Not an Exception, so that no handler of failures catches it."""

    def __init__(self, signum: int):
        self.signal = signal.Signals(signum)
        super().__init__(self.signal.name)

    @property
    def exit_code(self) -> int:
        """A shell's exit code for a process that died of the signal."""
        return 128 + self.signal


# Signals belong to the process, and so does this state.
_received: int | None = None
_holding = False


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block the first of STOPS raises Stopped. Later ones are ignored, but a second Ctrl-C stops at once.

    After the run the signal is passed to the previous handler: submitit's requeues the job.
    """
    previous = {signum: signal.getsignal(signum) for signum in _handled()}
    for signum in previous:
        signal.signal(signum, _receive)
    try:
        yield
    except Stopped as stop:
        _restore(previous)
        handler = previous[stop.signal]
        if callable(handler):
            with _unstopped_children():
                handler(stop.signal, None)
        raise
    finally:
        _restore(previous)


@contextmanager
def _unstopped_children() -> Iterator[None]:
    """Let the programs that are started in the block ignore SIGTERM: Slurm sends it to all of a job's processes as it
    requeues the job, and so to the `scontrol requeue` that asked for it.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def unbroken() -> Iterator[None]:
    """Run the block to its end: a signal that arrives meanwhile raises Stopped afterwards."""
    global _holding
    outer, _holding = _holding, True
    try:
        yield
    finally:
        _holding = outer
    if _received is not None and not outer:
        raise Stopped(_received)


def _handled() -> list[int]:
    """The signals to handle: not ignored ones, and not a SIGTERM that has a handler already.

    submitit ignores SIGTERM, since its own signal follows in a preemption.
    """
    if threading.current_thread() is not threading.main_thread():
        return []  # Python lets no other thread set handlers
    handlers = {signum: signal.getsignal(signum) for signum in STOPS}
    free = (signal.SIG_DFL, signal.default_int_handler)
    return [s for s, handler in handlers.items() if handler in free or (callable(handler) and s != signal.SIGTERM)]


def _receive(signum: int, frame: object) -> None:
    global _received
    if _received is None:
        _received = signum
        if not _holding:
            raise Stopped(signum)
    elif signum == signal.SIGINT:
        raise KeyboardInterrupt


def _restore(previous: Mapping[int, Handler]) -> None:
    global _received
    for signum, handler in previous.items():
        signal.signal(signum, handler)
    _received = None
