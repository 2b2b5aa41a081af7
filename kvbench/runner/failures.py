"""Errors and signals as one line on standard error, and the exit code."""

import difflib
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from rich.text import Text

from kvbench.config import choices, options, stated_keys
from kvbench.errors import Incomplete, UserError, unknown
from kvbench.utils.console import err
from kvbench.utils.other_words import WORDS
from kvbench.utils.own_code import own_line, raised_in
from kvbench.utils.signals import Stopped
from kvbench.utils.yaml_files import yaml_fault

# Read here, because the command line then sets it, so that Hydra raises errors in place of printing them.
TRACEBACKS = os.environ.get("HYDRA_FULL_ERROR", "0") != "0"

NEARLY = 0.7  # of difflib's ratio: a slip of the keyboard

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


def told_of(group: str, name: str) -> str:
    """The choices of a group whose descriptions have a word, as one hint ("needle" is of niah), unless the word is
    nearly one of the names."""
    about = options(group)
    if same := [choice for choice in about if choice.lower() == name.lower()]:
        return f"Did you mean {same[0]!r}?"
    if difflib.get_close_matches(name, about, n=1, cutoff=NEARLY):
        return ""
    found = [choice for choice, text in about.items() if name.lower() in re.findall(r"[\w.-]+", text.lower())]
    return f"Did you mean {' or '.join(map(repr, found[:3]))}?" if found else ""


def meant_by(key: str, node: DictConfig) -> str:
    """A hint for a key that other tools have, that another choice has, or that lies deeper in the configuration."""
    if node._get_parent() is None and key in WORDS:
        return f"It is {WORDS[key]}."
    if elsewhere := had_by(key, str(node._get_full_key("") or "")):
        return elsewhere
    deeper = [path for path in paths_of(node) if path.rpartition(".")[2] == key]
    return f"Did you mean {' or '.join(map(repr, deeper[:3]))}?" if deeper else ""


def had_by(key: str, section: str) -> str:
    """A hint where other choices of a section have the key: benchmark.path is benchmark=jsonl's; or where it is one."""
    if section == "method" and key in options(section):
        return f"It is a method that is not chosen: add method={key}, or 'method=[…,{key}]'."
    if section != "benchmark":
        return ""
    found = [name for name in choices(section) if key in stated_keys(section, name)]
    return f"It is a key of {' or '.join(f'{section}={name}' for name in found[:3])}." if found else ""


def paths_of(node: DictConfig) -> Iterator[str]:
    """The keys below those of a configuration's node, with dots between them; nothing is resolved."""
    for name, value in node.items_ex(resolve=False):
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            below = [str(inner) for inner in value] if not value._is_missing() else []
            yield from (f"{name!s}.{inner}" for inner in (*below, *paths_of(value)))


def one_line(error: BaseException) -> str:
    """An error of ours or of Hydra's as one sentence."""
    if isinstance(error, MissingConfigException) and "/" in str(error.missing_cfg_file):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if name.startswith("submitit"):
            return "hydra/launcher=slurm needs hydra-submitit-launcher: pip install 'kvbench[slurm]'"
        return str(unknown(group, name, error.options or choices(group), told_of(group, name)))
    if isinstance(error, yaml.YAMLError):
        place = getattr(getattr(error, "problem_mark", None), "name", "the configuration")
        return f"{place} is not YAML: {yaml_fault(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        key = str(cause.key)
        return str(unknown("key", key, map(str, cause.parent_node.keys()), meant_by(key, cause.parent_node)))
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())
