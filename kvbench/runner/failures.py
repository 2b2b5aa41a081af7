"""Errors and signals as one line on standard error, and the exit code."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from rich.text import Text

from kvbench.config import choices
from kvbench.errors import Incomplete, UserError, unknown
from kvbench.utils.console import err
from kvbench.utils.own_code import own_line, raised_in
from kvbench.utils.signals import Stopped
from kvbench.utils.yaml_files import yaml_fault

# Read here, because the command line then sets it, so that Hydra raises errors in place of printing them.
TRACEBACKS = os.environ.get("HYDRA_FULL_ERROR", "0") != "0"

# Hydra and what it reads YAML with, which have no error of their own for some mistakes.
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
        if not TRACEBACKS and (own := own_line(error)) is not None:
            fail(f"{own} (HYDRA_FULL_ERROR=1 shows the traceback)", 2)
        if not TRACEBACKS and raised_in(error) in HYDRA:
            fail(one_line(error), 2)
        if TRACEBACKS or not type(error).__module__.startswith("submitit."):
            raise
        # Slurm took no job, or a job died; what it wrote follows the first lines
        fail(" ".join(str(error).splitlines()[:2]) + " (kvbench status shows every job)", 1)
    except (Stopped, KeyboardInterrupt) as stop:
        name, code = (stop.signal.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
        fail(f"stopped by {name}; all finished records are saved, and the same command continues from here", code)


def fail(message: str, code: int) -> None:
    err.print(Text.assemble(("kvbench:", "bold red"), f" {message}"), highlight=False, soft_wrap=True)
    raise SystemExit(code)


def one_line(error: BaseException) -> str:
    """An error of ours or of Hydra's as one sentence."""
    if isinstance(error, MissingConfigException) and "/" in str(error.missing_cfg_file):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if name.startswith("submitit"):
            return "hydra/launcher=slurm needs hydra-submitit-launcher: pip install 'kvbench[slurm]'"
        return str(unknown(group, name, error.options or choices(group)))
    if isinstance(error, yaml.YAMLError):
        place = getattr(getattr(error, "problem_mark", None), "name", "the configuration")
        return f"{place} is not YAML: {yaml_fault(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        return str(unknown("key", str(cause.key), map(str, cause.parent_node.keys())))
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())
