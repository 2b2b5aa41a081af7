"""The jobs of a sweep (`-m`), all of which are checked before the first one runs."""

import json
import os
import shutil
import sys
from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, open_dict

from kvbench.configuration import Configuration, resolved
from kvbench.configuration.conf import sweep_jobs
from kvbench.errors import UserError
from kvbench.records.identity import FOLDER_FIELDS
from kvbench.runner.prerequisites import check_machine
from kvbench.utils.console import err

# Keys that decide to which file of records a job writes: jobs that agree in them write to the same one.
OF_FILE = {*FOLDER_FIELDS, "output_dir", "shards", "shard"}


def check(config: DictConfig, jobs: Sequence[Sequence[str]]) -> None:
    """Refuse a sweep with a mistake in any job, before one is run or submitted."""
    sweeper = str(config.hydra.sweeper._target_).rpartition(".")[2]
    if sweeper != "BasicSweeper":
        raise UserError(f"hydra.sweeper={sweeper}: -m makes a job for each combination of values: leave it out")
    configs = [resolved_job(config, job) for job in jobs]
    sys.path.append(os.getcwd())  # where a user's own methods, benchmarks and metrics are found
    for cfg in configs:
        check_machine(cfg)

    from kvbench.runner.request import build_request  # imports torch, which takes seconds

    if is_slurm(config):
        check_slurm(config.hydra.launcher)
        if "%" in str(config.hydra.sweep.dir):
            raise UserError(
                f"output_dir={config.hydra.sweep.dir}: Slurm replaces what follows a % sign: name it without"
            )
    first: dict[str, int] = {}  # a folder of records -> the first job that writes to it
    for number, cfg in enumerate(configs, start=1):
        build_request(cfg)
        of_file = {key: value for key, value in cfg.plain.items() if key in OF_FILE}
        target = json.dumps(of_file | {"probe": bool(cfg.probe)}, sort_keys=True)
        if first.setdefault(target, number) != number and _launcher(config) != "BasicLauncher":
            raise UserError(
                f"jobs {first[target]} and {number} of the sweep would write to the same records at the same time: "
                "give methods, ratios and budgets as a list, 'ratio=[0.2,0.4]', which also shares each prefill"
            )
    if len(first) < len(jobs):
        err.print(
            f"{len(jobs)} jobs share {len(first)} folder(s), and each prefills every prompt again; one list, such "
            "as 'ratio=[0.2,0.4]', shares each prefill",
            highlight=False,
            soft_wrap=True,
        )


def check_slurm(launcher: DictConfig) -> None:
    """Refuse a machine without Slurm, jobs of several processes, and a warning before the time limit that would come as
    a task starts."""
    for program in ("sbatch", "squeue"):
        if shutil.which(program) is None:
            raise UserError(f"this machine has no {program}: run where jobs are submitted to Slurm")
    for name in ("nodes", "tasks_per_node"):
        if launcher[name] > 1:
            raise UserError(
                f"hydra.launcher.{name}={launcher[name]} would make the same records in several processes, and all but "
                "one would be refused: it must be 1. shards= divides the samples into jobs"
            )
    minutes, delay = launcher.timeout_min, launcher.signal_delay_s  # no minutes: no limit
    if minutes and delay >= 60 * minutes:
        raise UserError(
            f"hydra.launcher.signal_delay_s={delay} is all of hydra.launcher.timeout_min={minutes}, so that every task "
            "would be stopped as it starts: give it fewer seconds"
        )


def is_slurm(config: DictConfig) -> bool:
    """Whether the jobs are submitted to Slurm."""
    return _launcher(config) == "SlurmLauncher"


def _launcher(config: DictConfig) -> str:
    return str(config.hydra.launcher._target_).rpartition(".")[2]


def resolved_job(config: DictConfig, overrides: Sequence[str]) -> Configuration:
    """The configuration of one job of a sweep, without Hydra's section."""
    cfg = GlobalHydra.instance().config_loader().load_sweep_config(config, list(overrides))
    with open_dict(cfg):
        del cfg["hydra"]
    return resolved(cfg)


def jobs(config: DictConfig) -> list[list[str]]:
    """The overrides of every job of a sweep."""
    params = config.hydra.sweeper.params or {}  # what an experiment sweeps over by itself
    return sweep_jobs([*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task])
