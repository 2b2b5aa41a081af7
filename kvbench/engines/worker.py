"""A worker process with an engine in a separate environment: a JSON line for each question and each answer."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

from kvbench.engines.base import Gone
from kvbench.engines.processes import last_line
from kvbench.errors import UserError

START = 3600.0  # seconds for an engine to load its model
LOOP = Path(__file__).with_name("worker_loop.py")


def python_of(python: str | None, environment: str, install: str) -> Path:
    """The Python of an engine's environment: engine.python, or the Python of the folder `environment` in the current
    folder or the repository. Raises UserError with the command that installs it.
    """
    if python is not None:
        path = Path(python).expanduser()
        path = path / "bin" / "python" if path.is_dir() else path
        if not path.is_file():
            raise UserError(f"engine.python={python} is neither a Python nor the folder of an environment")
        return path
    if (installed := in_environment(environment)) is not None:
        return installed
    raise UserError(
        f"the engine is not installed: make {target_of(environment)}, or python3 -m venv {environment} && "
        f"{environment}/bin/pip install {install} (engine.python=FOLDER names another environment)"
    )


def in_environment(environment: str) -> Path | None:
    """The Python of an environment in the current folder or the repository; None without one."""
    paths = (folder / environment / "bin" / "python" for folder in (Path.cwd(), Path(__file__).resolve().parents[2]))
    return next((path for path in paths if path.is_file()), None)


def target_of(environment: str) -> str:
    """The Makefile's target that installs an environment: engine-llama for .venv-llama."""
    return environment.replace(".venv-", "engine-")


class Worker:
    """A running worker. Only one thread may ask it at a time."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path, timeout: float):
        assert process.stdin is not None and process.stdout is not None, "the process was started with pipes"
        self.stdin, self.stdout = process.stdin, process.stdout
        self.process, self.log, self.timeout = process, log, timeout

    def ask(self, node: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The answer to a question. Raises WorkerError for a question that the engine could not answer, and Gone if the
        process has ended or does not answer in time.
        """
        timeout = timeout or self.timeout
        late = Timer(timeout, self.process.kill)
        late.start()
        try:
            self.stdin.write(json.dumps(node) + "\n")
            self.stdin.flush()
            line = self.stdout.readline()
        except (OSError, ValueError):
            line = ""
        finally:
            in_time = late.is_alive()
            late.cancel()
        if not line.endswith("\n"):
            raise Gone(self.end() if in_time else f"no answer within {timeout:g} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(" ".join(str(answer["error"]).split()))
        return answer

    def end(self) -> str:
        """How the process ended, in one line."""
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        words = last_line(self.log)[:300]
        return f"its process ended with {how}" + (f": {words}" if words else "")


class WorkerError(Exception):
    """The engine's reason to refuse a question or settings, in its words."""


@contextmanager
def started(
    python: Path, script: Path, settings: Mapping[str, Any], timeout: float
) -> Iterator[tuple[Worker, dict[str, Any]]]:
    """A worker that has read its settings, and its first answer; the process ends with the block.

    Raises WorkerError if the engine refuses the settings.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with tempfile.TemporaryDirectory(prefix="kvbench-worker-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(python), "-I", "-u", str(LOOP), str(script)],  # -I: no module is imported from the script's folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C reaches only the run, which ends the worker
            )
        worker = Worker(process, log, timeout)
        try:
            yield worker, worker.ask(settings, START)
        finally:
            process.kill()
            process.wait()
            with suppress(OSError):  # the process may have ended without reading a question
                worker.stdin.close()
            worker.stdout.close()
