"""Official prompts from the installed files of lm-evaluation-harness."""

import importlib.util
from pathlib import Path
from typing import Any

import yaml

from kvbench.errors import UserError

VERSION = "0.4.13"  # the version whose files were checked against the official prompts


def lm_eval_tasks(name: str) -> Path:
    """Folder of a task family of the installed lm-eval, `longbench` or `ruler`; lm-eval is not imported.

    Raises UserError with the command that installs it.
    """
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the official prompts of {name} are read from the package lm-eval, which is not installed: "
            f"pip install --no-deps lm-eval=={VERSION}"
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "tasks" / name
    if not folder.is_dir():
        raise UserError(
            f"the installed lm-eval has no folder tasks/{name} with the official prompts: "
            f"pip install --no-deps lm-eval=={VERSION}"
        )
    return folder


def task_file(path: Path) -> dict[str, Any]:
    """A task's YAML file; what it names of lm-eval's code is None. Raises OSError and yaml.YAMLError."""
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _TolerantLoader)
    return found


class _TolerantLoader(yaml.SafeLoader):
    """Reads past tags such as !function, which name code."""


_TolerantLoader.add_multi_constructor("!", lambda loader, suffix, node: None)
