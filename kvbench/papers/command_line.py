"""The command line that `table` and `figure` share: help, arguments, and the configurations that overrides name."""

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from hydra import initialize_config_dir

from kvbench.config import hydra_folder, options, sweep_jobs
from kvbench.configuration import Configuration, configured
from kvbench.papers.experiment import named_by
from kvbench.utils.console import print_line
from kvbench.utils.extras import require


def run_command(arguments: Sequence[str], help_text: str, module: str, packages: Sequence[str] = ()) -> None:
    """Print the help and every experiment, or call `make(overrides, runs, out)` of `module`.

    `module` is imported only for the work, since it brings pandas and torch, which take seconds. Raises UserError
    without one of `packages`.
    """
    if {"--help", "-h"} & set(arguments):
        width = max(map(len, options("experiment")))
        lines = [help_text, *(f"  {name:<{width}}  {about}" for name, about in options("experiment").items())]
        print_line("\n".join(lines))
        return
    require("this command", *packages)
    import_module(module).make(*split(arguments))


class Arguments(NamedTuple):
    """The configuration's overrides, the folders of runs= and the folder of out= (None when not given)."""

    overrides: list[str]
    runs: list[str]
    out: str | None


def split(arguments: Sequence[str]) -> Arguments:
    """A command's arguments, by what they are for."""
    overrides, runs, out = [], [], None
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "runs":
            runs += [part.strip() for part in value.strip("[]").split(",") if part.strip()]
        elif key == "out":
            out = value
        elif argument not in ("-m", "--multirun"):
            overrides.append(argument)
    return Arguments(overrides, runs, out)


def configurations(overrides: Sequence[str]) -> list[Configuration]:
    """The distinct configurations of `+experiment=NAME` with more overrides.

    Values separated by commas give one configuration each, as in `kvbench -m`. Without a `model=` override there is
    one for each of the experiment's models. Raises UserError without an experiment.
    """
    found: list[Configuration] = []
    with initialize_config_dir(hydra_folder(), version_base="1.3"):
        for job in jobs(overrides):
            cfg = configured(job)
            experiment = named_by(cfg)
            named = any(override.startswith("model=") for override in job)
            for model in [cfg.model.name] if named else experiment.models:
                found.append(cfg if model == cfg.model.name else configured([*job, f"model={model}"]))
    return [cfg for i, cfg in enumerate(found) if cfg not in found[:i]]


def jobs(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """The override lists of a sweep's jobs, without shards and Hydra's own settings, which change no record."""
    expanded = [tuple(override for override in job if _matters(override)) for job in sweep_jobs(overrides)]
    return list(dict.fromkeys(expanded))


def _matters(override: str) -> bool:
    key = override.partition("=")[0]
    return not (key in ("shard", "shards") or key.startswith("hydra"))
