"""Sweeps (`-m`): all jobs are checked before the first runs, each is announced, and a failing one stops no other."""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict

from kvbench.config import sweep_jobs
from kvbench.configuration import Configuration, resolved
from kvbench.errors import UserError
from kvbench.runner.failures import TRACEBACKS, JobFailed, one_line_errors
from kvbench.runner.prerequisites import check_machine
from kvbench.utils.console import err
from kvbench.utils.own_code import own_line
from kvbench.utils.text import in_one_line

# What jobs may differ in that write to the same records.
NOT_IN_FOLDER = (
    "method",
    "engine",
    "press",
    "press_args",
    "ratio",
    "budget",
    "limit",
    "decode",
    "kernels",
    "prefill",
    "wandb",
    "experiment",
)


class Jobs(Callback):
    """Hydra calls these; where one raises an Exception, Hydra goes on with a warning."""

    def __init__(self) -> None:
        self.count = 0  # of jobs, where there is a sweep
        self.common: set[str] = set()  # overrides that all jobs have

    def on_multirun_start(self, config: DictConfig, **kwargs: object) -> None:
        with one_line_errors():
            overrides = jobs(config)
            self.count = len(overrides)
            self.common = set.intersection(*map(set, overrides)) if self.count > 1 else set()
            check(config, overrides)

    def on_job_start(self, config: DictConfig, **kwargs: object) -> None:
        if self.count:
            err.print(self.title(config), style="bold", highlight=False, soft_wrap=True)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: object) -> None:
        job_return.__class__ = Outcome
        if self.count and job_return.status is JobStatus.FAILED:
            error = job_return.error
            own = None if TRACEBACKS or isinstance(error, UserError) else own_line(error)
            if own is None and not isinstance(error, UserError):
                traceback.print_exception(error)
            failed = JobFailed(f"{self.title(config)} failed: {own or in_one_line(error)}")
            err.print(str(failed), highlight=False, soft_wrap=True)
            job_return.return_value = failed
            let_go(error)

    def title(self, config: DictConfig) -> str:
        own = [override for override in config.hydra.overrides.task if override not in self.common]
        return f"job {config.hydra.job.num + 1} of {self.count}: {' '.join(own)}"


def let_go(error: BaseException | None) -> None:
    """Free what the frames of a failed job hold: its model, where the next job needs the memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Outcome(JobReturn):
    """What a job left, without the line that Hydra writes before it raises a job's error."""

    @property
    def error(self) -> BaseException:
        error = self._return_value
        assert isinstance(error, BaseException), "Hydra keeps a failed job's error in place of its value"
        return error

    @property
    def return_value(self) -> object:
        if self.status is JobStatus.FAILED:
            raise self.error
        return self._return_value

    @return_value.setter
    def return_value(self, value: object) -> None:
        self._return_value = value


def check(config: DictConfig, jobs: Sequence[Sequence[str]]) -> None:
    """Refuse a sweep with a mistake in any job, while none has been run or submitted."""
    configs = [resolved_job(config, job) for job in jobs]
    for one in configs:
        check_machine(one)

    from kvbench.runner.request import build_request  # imports torch, which takes seconds

    sys.path.append(os.getcwd())
    launcher = str(config.hydra.launcher._target_).rpartition(".")[2]
    if launcher == "SlurmLauncher" and shutil.which("sbatch") is None:
        raise UserError("this machine has no sbatch: run where jobs are submitted to Slurm")
    first: dict[str, int] = {}  # the records that a job writes to -> the first job that does
    for number, one in enumerate(configs, start=1):
        build_request(one)
        own = {key: value for key, value in one.plain.items() if key not in NOT_IN_FOLDER}
        target = json.dumps(own | {"probe": bool(one.probe)}, sort_keys=True)
        if first.setdefault(target, number) != number and launcher != "BasicLauncher":
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


def resolved_job(config: DictConfig, overrides: Sequence[str]) -> Configuration:
    """The whole configuration of one job of a sweep, without Hydra's own."""
    cfg = GlobalHydra.instance().config_loader().load_sweep_config(config, list(overrides))
    with open_dict(cfg):
        del cfg["hydra"]
    return resolved(cfg)


def jobs(config: DictConfig) -> list[list[str]]:
    """The overrides of every job of a sweep."""
    params = config.hydra.sweeper.params or {}  # what an experiment sweeps over by itself
    return sweep_jobs([*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task])
