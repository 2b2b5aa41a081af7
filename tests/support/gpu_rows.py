"""Rows of a check for tests of how they are run: what a preset finds, an error, a crash, and one that takes long."""

import os
import time
from pathlib import Path

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


def sleeps() -> dict:
    time.sleep(600)
    return {}
