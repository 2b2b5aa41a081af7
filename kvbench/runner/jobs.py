"""Jobs of Hydra: a run, or the jobs of a sweep (`-m`), which Hydra's launcher makes in this process or on a cluster."""

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import run_job
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from kvbench.configuration.conf import config_folder, hydra_folder, more_configuration, search_path, with_first_choices
from kvbench.errors import UserError, on_disk
from kvbench.runner import sweep
from kvbench.runner.failures import TRACEBACKS, JobFailed, fail
from kvbench.utils.console import err
from kvbench.utils.own_code import own_line
from kvbench.utils.text import in_one_line

LAUNCHER = ("hydra/launcher", "hydra.launcher")  # begin the overrides that choose and set a launcher

Run = Callable[[DictConfig], None]  # of the configuration as Hydra composed it


@dataclass(frozen=True)
class Job:
    """The function that Hydra calls. It returns an error: Hydra would print a line before it raised it again."""

    run: Run

    def __call__(self, cfg: DictConfig) -> Exception | None:
        try:
            self.run(cfg)
        except Exception as error:
            return self.failed(error)
        return None

    def failed(self, error: Exception) -> Exception:
        return error


@dataclass(frozen=True)
class SweepJob(Job):
    """One of several jobs, announced at its start, with a line if it fails. A launcher may pickle it."""

    count: int
    common: frozenset[str]  # overrides that all jobs have
    folder: Path | None  # of --config-dir, which the process of a launcher's job would not know

    def __call__(self, cfg: DictConfig) -> Exception | None:
        err.print(self.title, style="bold", highlight=False, soft_wrap=True)
        with more_configuration(self.folder):
            return super().__call__(cfg)

    @property
    def title(self) -> str:
        job = HydraConfig.get()
        overrides = [override for override in job.overrides.task if override not in self.common]
        return f"job {job.job.num + 1} of {self.count}: {' '.join(overrides)}"

    def failed(self, error: Exception) -> JobFailed:
        line = None if TRACEBACKS or isinstance(error, UserError) else own_line(error)
        if line is None and not isinstance(error, UserError):
            traceback.print_exception(error)
        failed = JobFailed(f"{self.title} failed: {line or in_one_line(error)}")
        err.print(str(failed), highlight=False, soft_wrap=True)
        let_go(error)
        return failed


def let_go(error: BaseException | None) -> None:
    """Free the objects of a failed job's frames, such as its model: the next job needs the memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def run_one(overrides: Sequence[str], run: Run) -> None:
    """Run the configuration of these overrides here. Raises what `run` raises, and UserError for a launcher."""
    for override in overrides:
        if override.lstrip("+").startswith(LAUNCHER):
            raise UserError(f"{override}: a launcher starts the jobs of a sweep, and this is one run: add -m")
    with _hydra() as loader:
        config = _loaded(loader, overrides, RunMode.RUN)
        result = run_job(
            task_function=Job(run),
            config=config,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
            hydra_context=HydraContext(loader, Callback()),
        )
        if result.return_value is not None:
            raise result.return_value


def run_sweep(overrides: Sequence[str], run: Run) -> None:
    """Check all jobs, then have Hydra's launcher run them.

    Raises UserError for a mistake in any of them, and JobFailed for the first that failed once all have ended.
    """
    with _hydra() as loader:
        config = _loaded(loader, with_first_choices(overrides), RunMode.MULTIRUN)
        config.hydra.overrides.task = [text for text in overrides if text not in config.hydra.overrides.hydra]
        jobs = sweep.jobs(config)
        sweep.check(config, jobs)
        folder = Path(str(config.hydra.sweep.dir))
        with on_disk(f"write to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(config, folder / "multirun.yaml")
        common = frozenset.intersection(*map(frozenset, jobs)) if jobs[1:] else frozenset()
        job = SweepJob(run, len(jobs), common, config_folder())
        context = HydraContext(loader, Callback())
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        with submitting(folder) if sweep.is_slurm(config) else nullcontext():
            results = launcher.launch(jobs, initial_job_idx=0)
    for result in results:
        if result.return_value is not None:
            raise result.return_value


@contextmanager
def submitting(folder: Path) -> Iterator[None]:
    """Within the block Slurm's launcher submits jobs and waits for them; Ctrl-C leaves it, and the jobs go on.

    The variables of a job that this process belongs to are hidden: sbatch and srun would take them for the new jobs'.
    """
    from kvbench.runner.slurm_jobs import waiting_for_all  # submitit, which a machine without Slurm may lack

    inside = "SLURM_JOB_ID" in os.environ
    hidden = [name for name in os.environ if inside and name.startswith("SLURM_") and name != "SLURM_CONF"]
    values = {name: os.environ.pop(name) for name in hidden}
    try:
        with waiting_for_all():
            yield
    except KeyboardInterrupt:
        shown = f"kvbench status {shlex.quote(str(folder))}"
        fail(f"stopped waiting; jobs that Slurm has taken go on: {shown} shows them, scancel ends them", 130)
    finally:
        os.environ.update(values)


@contextmanager
def _hydra() -> Iterator[ConfigLoader]:
    with initialize_config_dir(hydra_folder(), job_name="kvbench", version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


def _loaded(loader: ConfigLoader, overrides: Sequence[str], mode: RunMode) -> Any:
    config = loader.load_configuration("config", [*search_path(), *overrides], run_mode=mode)
    config.hydra.mode = mode
    return config


def ask_hydra(options: Sequence[str], overrides: Sequence[str]) -> None:
    """Have Hydra answer its own options. Its errors are raised, not printed."""
    os.environ["HYDRA_FULL_ERROR"] = "1"
    before, sys.argv = sys.argv, [sys.argv[0], *options, *overrides]
    try:
        hydra.main(version_base="1.3", config_path=hydra_folder(), config_name="config")(_nothing)()
    finally:
        sys.argv = before


def _nothing(cfg: DictConfig) -> None:
    """The task of an application in which Hydra only answers its own options."""
