"""The command line: `kvbench KEY=VALUE …` runs an evaluation, `kvbench COMMAND …` works on what runs have left.

A user's mistake is one line and exit code 2. Modules load only once they are needed: torch and transformers take
seconds, which `--help` and a misspelt name need not wait for.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import hydra
from omegaconf import DictConfig, OmegaConf

from kvbench.config import CONF
from kvbench.errors import UserError
from kvbench.run.failures import one_line_errors
from kvbench.run.help import COMMANDS, help_text
from kvbench.run.job import starting
from kvbench.utils.console import out
from kvbench.utils.signals import stoppable


def main() -> None:
    """Entry point of `kvbench` and `python -m kvbench`."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        with one_line_errors():
            raise SystemExit(run_command(*arguments))
    if {"--help", "-h"} & set(arguments):
        out.print(help_text(), highlight=False, soft_wrap=True)
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with one_line_errors():
        refuse_lists(arguments)
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(_task)()


def run_command(name: str, *arguments: str) -> int:
    """Run one of COMMANDS; its exit code. Raises UserError where its arguments or its files are at fault."""
    return import_module(COMMANDS[name].module).main(list(arguments)) or 0


def _task(cfg: DictConfig) -> None:
    from kvbench.run.run import run

    sys.path.append(os.getcwd())  # where method._target_=my_module.MyMethod finds my_module
    resolved = OmegaConf.to_container(cfg, resolve=True)
    with stoppable(), starting(resolved):
        run(resolved)


def refuse_lists(arguments: Sequence[str]) -> None:
    """Hydra would merge several models or benchmarks into one."""
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("model", "benchmark") and value.startswith("["):
            names = ",".join(name.strip() for name in value.strip("[]").split(","))
            raise UserError(f"{argument}: a run has one {key}; -m {key}={names} makes a run for each")
