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

from kvbench.configuration.conf import choices, options, stated_keys
from kvbench.errors import Incomplete, UserError, unknown
from kvbench.utils.console import err
from kvbench.utils.other_words import WORDS
from kvbench.utils.own_code import own_line, raised_in
from kvbench.utils.signals import Stopped
from kvbench.utils.yaml_files import yaml_fault

# Read before the command line sets it, which makes Hydra raise errors instead of printing them.
TRACEBACKS = os.environ.get("HYDRA_FULL_ERROR", "0") != "0"

NEARLY = 0.7  # difflib's ratio above which a word is a typing error

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
        # Slurm took no job, or a job died: its output follows the first two lines
        fail(" ".join(str(error).splitlines()[:2]) + " (kvbench status shows every job)", 1)
    except (Stopped, KeyboardInterrupt) as stop:
        name, code = (stop.signal.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
        fail(f"stopped by {name}; all finished records are saved, and the same command continues from here", code)


def fail(message: str, code: int) -> None:
    err.print(Text.assemble(("kvbench:", "bold red"), f" {message}"), highlight=False, soft_wrap=True)
    raise SystemExit(code)


def hint_by_description(group: str, name: str) -> str:
    """A hint that names the choices of a group with a word in their description ("needle": niah); empty for a word that
    is nearly one of the names."""
    about = options(group)
    if spellings := [choice for choice in about if choice.lower() == name.lower()]:
        return f"Did you mean {spellings[0]!r}?"
    if difflib.get_close_matches(name, about, n=1, cutoff=NEARLY):
        return ""
    matches = [choice for choice, text in about.items() if name.lower() in re.findall(r"[\w.-]+", text.lower())]
    return f"Did you mean {' or '.join(map(repr, matches[:3]))}?" if matches else ""


def hint_for_key(key: str, node: DictConfig) -> str:
    """A hint for a key that other tools or other choices have, or that is nested deeper in the configuration."""
    if node._get_parent() is None and key in WORDS:
        return f"It is {WORDS[key]}."
    if elsewhere := hint_elsewhere(key, str(node._get_full_key("") or "")):
        return elsewhere
    deeper = [path for path in paths_of(node) if path.rpartition(".")[2] == key]
    return f"Did you mean {' or '.join(map(repr, deeper[:3]))}?" if deeper else ""


def hint_elsewhere(key: str, section: str) -> str:
    """A hint where other choices of a section have the key: benchmark.path is benchmark=jsonl's; or where it is one."""
    if section == "method" and key in options(section):
        return f"It is a method that is not chosen: add method={key}, or 'method=[…,{key}]'."
    if section != "benchmark":
        return ""
    with_key = [name for name in choices(section) if key in stated_keys(section, name)]
    return f"It is a key of {' or '.join(f'{section}={name}' for name in with_key[:3])}." if with_key else ""


def paths_of(node: DictConfig) -> Iterator[str]:
    """The nested keys of a configuration's node as dotted paths; nothing is resolved."""
    for name, value in node.items_ex(resolve=False):
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            below = [str(inner) for inner in value] if not value._is_missing() else []
            yield from (f"{name!s}.{inner}" for inner in (*below, *paths_of(value)))


def one_line(error: BaseException) -> str:
    """An error of kvbench or Hydra as one sentence."""
    if isinstance(error, MissingConfigException) and "/" in str(error.missing_cfg_file):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if name.startswith("submitit"):
            return "hydra/launcher=slurm needs hydra-submitit-launcher: pip install 'kvbench[slurm]'"
        return str(unknown(group, name, error.options or choices(group), hint_by_description(group, name)))
    if isinstance(error, yaml.YAMLError):
        place = getattr(getattr(error, "problem_mark", None), "name", "the configuration")
        return f"{place} is not YAML: {yaml_fault(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        key = str(cause.key)
        return str(unknown("key", key, map(str, cause.parent_node.keys()), hint_for_key(key, cause.parent_node)))
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())
