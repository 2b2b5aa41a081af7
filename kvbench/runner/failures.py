"""Errors and signals as one line on standard error, and the exit code."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import CalledProcessError

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.text import Text

from kvbench.configuration.mistakes import one_line
from kvbench.errors import Incomplete, UserError
from kvbench.utils.console import err
from kvbench.utils.own_code import own_line, raised_in
from kvbench.utils.signals import Stopped

# Read before the command line sets it, which makes Hydra raise errors instead of printing them.
TRACEBACKS = os.environ.get("HYDRA_FULL_ERROR", "0") != "0"

# Hydra and the packages with which it reads YAML, which raise any kind of error for some mistakes.
HYDRA = ("hydra", "omegaconf", "antlr4", "yaml")


class JobFailed(Exception):
    """A job of a sweep failed; the message is one line."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print a user's mistake as one line and exit with code 2; HYDRA_FULL_ERROR=1 shows the traceback instead."""
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if TRACEBACKS:
            traceback.print_exc()
            raise SystemExit(1) from error
        fail(one_line(error), 1 if isinstance(error, Incomplete) else 2)
    except JobFailed as error:
        fail(str(error), 1)
    except Exception as error:
        if not TRACEBACKS and (line := own_line(error)) is not None:
            fail(f"{line} (HYDRA_FULL_ERROR=1 shows the traceback)", 2)
        if not TRACEBACKS and raised_in(error) in HYDRA:
            fail(one_line(error), 2)
        if TRACEBACKS or not type(error).__module__.startswith("submitit."):
            raise
        # a job died, and its output follows the first two lines; or sbatch, whose error is the cause, took none
        shown = "" if isinstance(error.__cause__, CalledProcessError) else " (kvbench status shows every job)"
        fail(" ".join(str(error).splitlines()[:2]) + shown, 1)
    except (Stopped, KeyboardInterrupt) as stop:
        name, code = (stop.signal.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
        fail(f"stopped by {name}; all finished records are saved, and the same command continues from here", code)


def fail(message: str, code: int) -> None:
    err.print(Text.assemble(("kvbench:", "bold red"), f" {message}"), highlight=False, soft_wrap=True)
    raise SystemExit(code)
