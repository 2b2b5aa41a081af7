"""A worker that is gone before it reads a question: how it ended, in one line."""

import sys
from pathlib import Path

import pytest

from kvbench.engines.base import Gone
from kvbench.engines.worker import started

ENDS = """
import atexit, os, sys

class Worker:
    def __init__(self, settings):
        atexit.register(os._exit, 3)

    def about(self):
        print("out of memory", file=sys.stderr)
        sys.stdin = ()  # as if no question came
        return {}
"""


def test_a_question_to_a_process_that_has_ended(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    with (
        pytest.raises(Gone, match=r"^its process ended with exit code 3: out of memory$"),
        started(Path(sys.executable), script, {}, 60) as (worker, _),
    ):
        worker.process.wait()
        worker.ask({"do": "complete"})
