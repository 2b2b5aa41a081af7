"""Official prompts from the installed files of lm-evaluation-harness."""

from pathlib import Path
from typing import Any

import yaml

from kvbench.benchmarks.published_data import installed_folder
from kvbench.errors import UserError

VERSION = "0.4.13"  # the version whose files were checked against the official prompts
INSTALL = f"pip install --no-deps lm-eval=={VERSION}"


def lm_eval_tasks(name: str) -> Path:
    """Folder of a task family of the installed lm-eval, `longbench` or `ruler`; lm-eval is not imported.

    Raises UserError with the command that installs it.
    """
    if (package := installed_folder("lm_eval")) is None:
        raise UserError(
            f"the official prompts of {name} are read from the package lm-eval, which is not installed: {INSTALL}"
        )
    folder = package / "tasks" / name
    if not folder.is_dir():
        raise UserError(f"the installed lm-eval has no folder tasks/{name} with the official prompts: {INSTALL}")
    return folder


def task_file(path: Path) -> dict[str, Any]:
    """A task's YAML file; names of lm-eval's code in it are None. Raises OSError and yaml.YAMLError."""
    return yaml.load(path.read_text(encoding="utf-8"), _TolerantLoader)


class _TolerantLoader(yaml.SafeLoader):
    """Reads tags such as !function, which name code, as None."""


_TolerantLoader.add_multi_constructor("!", lambda loader, suffix, node: None)
