"""Rows of a check for tests of how they are run: what a preset finds, an error, a crash, and one that takes long."""

import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from scripts.benchmarks.gpu.processes import COMPILED, RESULT, tell_so_far

OPERATORS = {"quantise": {"calls": 1, "difference": 0.0, "over_allowed": 0.0, "integers": 0.0}}
GOOD = {
    "kept_equal": True,
    "prompts": 1,
    "outputs": 0.0,
    "tokens": [1, 2],
    "cpu_tokens": [1, 2],
    "tokens_equal": True,
    "eager_tokens": [1, 2, 3],
    "graph_tokens": [1, 2, 3],
    "graph_expected": True,
    "graph_steps": 2,
    "graph_close_call": None,
    "close_call": None,
    "torch.float32": OPERATORS,
}


def good(log: str = os.devnull) -> dict:
    with Path(log).open("a") as file:
        file.write("run\n")
    return GOOD


def machine(*_) -> dict:
    return {"name": "a test"}


def fails() -> dict:
    raise ValueError("no such\nthing")


def crashes() -> dict:
    os.abort()


def process(*_) -> dict:
    return {"process": os.getpid()}


def spans(log: str, name: str) -> dict:
    """When this began and ended; a row that measures no time ends once another one runs, too."""
    file = Path(log)
    started = time.perf_counter()
    with file.open("a") as lines:
        lines.write(f"{name}\n")
    kind = name.split("/")[0]
    while kind != "speed" and file.read_text().count(f"{kind}/") < 2:
        time.sleep(0.01)
    return {"span": [started, time.perf_counter()]}


def out_of_memory() -> dict:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


class Context:
    """Processes that are none: each tells of compilations that took so many seconds, later than a row may take."""

    def __init__(self, compiles: list[float]):
        self.compiles = compiles

    def Pipe(self):
        return multiprocessing.Pipe()

    def Process(self, target, args):
        connection = Connection(os.dup(args[0].fileno()))  # the worker closes its own

        def works() -> None:
            while connection.recv() is not None:
                for seconds in self.compiles:
                    connection.send((COMPILED, seconds))
                time.sleep(0.4)
                connection.send((RESULT, GOOD))

        thread = threading.Thread(target=works, daemon=True)
        thread.is_alive = lambda: True
        return thread


def sleeps() -> dict:
    time.sleep(600)
    return {}


def tells_and_sleeps() -> dict:
    tell_so_far({"settings": {"full": {"graph_tokens_per_s": 9.0}}})
    return sleeps()


def sleeps_with_errors_in(log: str) -> dict:
    with Path(log).open("w") as file:
        os.dup2(file.fileno(), 2)
    return sleeps()


def tells_and_crashes() -> dict:
    tell_so_far({"settings": {"full": {"graph_tokens_per_s": 9.0}}})
    return crashes()
