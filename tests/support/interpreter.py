"""Commands of kvbench one after the other in one new interpreter: its start takes as long as several of them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

CODE = """
import contextlib, io, json, sys
from kvbench.__main__ import main

ended = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["kvbench", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main() or 0
        except SystemExit as stop:
            code = stop.code or 0
    ended.append([code, out.getvalue(), err.getvalue(), sorted({"torch", "transformers"} & {*sys.modules})])
print(json.dumps(ended))
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it printed, and which libraries of models are imported by then."""

    code: int
    out: str
    err: str
    imported: list[str]


def in_one_interpreter(*commands: tuple[str, ...], cwd: Path = ROOT, **env: str) -> list[Ended]:
    """The ends of `kvbench COMMAND` for each command; `env` is added to this process's environment."""
    environment = os.environ | {"COLUMNS": "300", "PYTHONPATH": str(ROOT)} | env
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=json.dumps(commands), cwd=cwd, env=environment, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads(done.stdout.splitlines()[-1])]
