"""The main program of every worker: python -I worker_loop.py SCRIPT, by the Python of an engine's environment.

SCRIPT is a file with a class Worker and a function in_short, which shortens an error. Standard input has a JSON line
with the settings, then one per question; standard output has one per answer. This Python has no kvbench: only the
standard library is imported.
"""

import json
import os
import sys
from runpy import run_path
from typing import Any


def main(script: str) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of an engine's C code must not mix with answers
    names = run_path(script)

    def say(node: dict[str, Any]) -> None:
        answers.write(json.dumps(node) + "\n")
        answers.flush()

    def fail(error: Exception) -> None:
        say({"error": names["in_short"](error) or type(error).__name__})

    try:
        worker = names["Worker"](json.loads(sys.stdin.readline()))
        say(worker.about())
    except Exception as error:
        fail(error)
        return
    for line in sys.stdin:
        question = json.loads(line)
        try:
            say(getattr(worker, question.pop("do"))(**question))
        except Exception as error:
            fail(error)


if __name__ == "__main__":
    main(sys.argv[1])
