"""Processes that start at once: forked from one that has imported what a run of the command imports, in seconds.

They have an id, signals and an end of their own. What an interpreter does at its very end, such as handlers of
`atexit`, is left out: tests about that start an interpreter.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
# What a run imports, at its start or later.
CONTEXT.set_forkserver_preload(
    [
        "kvbench.runner.run",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_pdf",
        "transformers.models.llama.modeling_llama",
        "transformers.models.llama.tokenization_llama",
    ]
)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Process:
    """`python -m MODULE ARGUMENTS` in the repository's root; `env` is added to this process's environment."""

    def __init__(self, module: str, *arguments: str, **env: str):
        self.args = [module, *arguments]
        self._folder = tempfile.TemporaryDirectory(prefix="process-")
        folder = Path(self._folder.name)
        self._out, self._err = folder / "out", folder / "err"
        environment = dict(os.environ) | ONE_THREAD | env
        work = (module, arguments, environment, self._out, self._err)
        self._process = CONTEXT.Process(target=run_module, args=work, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def ended(self) -> subprocess.CompletedProcess:
        """The process once it has ended, as subprocess.run gives it."""
        self._process.join()
        out, err = (path.read_text(encoding="utf-8") if path.exists() else "" for path in (self._out, self._err))
        self._folder.cleanup()
        return subprocess.CompletedProcess(self.args, self._process.exitcode, out, err)


def run_module(module: str, arguments: tuple[str, ...], env: dict[str, str], out: Path, err: Path) -> None:
    """The process's work."""
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(env)
    for number, path in ((1, out), (2, err)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
