"""`python -m kvbench`: Hydra composes the configuration; a user's mistake is one line and exit code 2."""

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from rich.console import Console
from rich.markup import escape

from kvbench.errors import UserError, unknown
from kvbench.job import starting
from kvbench.signals import Stopped, stoppable

_PACKAGED = Path(__file__).parent / "conf"  # in an installed wheel
CONF = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "conf"
# groups of choices: what to type, and a remark
GROUPS = {
    "method": ("method=", "one or a list"),
    "model": ("model=", ""),
    "benchmark": ("benchmark=", ""),
    "probe": ("probe=", "one or a list; layers are looked at during prefill, in place of methods"),
    "experiment": ("+experiment=", "a published table or figure; with -m for each model that it compares"),
}
COMMANDS = {
    "tables": "an experiment's table from its records, beside the published one",
    "figures": "an experiment's figures from its records, beside the published curves",
    "report": "one HTML page of runs, with every sample",
    "results": "what records there are, and whether they fit together; export",
    "status": "how far runs and their shards are",
    "score": "LongBench predictions scored again with the official metrics",
    "benchmarks.ruler": "RULER's samples as files",
    "lm_eval": "lm-evaluation-harness with kvbench's models",
}


# Asked for before Hydra is told to raise instead of printing (below).
TRACEBACKS = os.environ.get("HYDRA_FULL_ERROR", "0") != "0"


def main() -> None:
    """Entry point of `kvbench` and `python -m kvbench`."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        Console().print(help_text(), highlight=False, soft_wrap=True)
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with mistakes_in_one_line():
        refuse_lists(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(_task)()


def _task(cfg: DictConfig) -> None:
    from kvbench.main import run  # torch and transformers load only once the configuration stands

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


class JobFailed(Exception):
    """A job of a sweep failed, told in one line."""


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """Tell a user's mistake in one line and exit with code 2; HYDRA_FULL_ERROR=1 shows the traceback instead."""
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if TRACEBACKS:
            traceback.print_exc()
            raise SystemExit(1) from error
        fail(one_line(error), 2)
    except JobFailed as error:
        fail(str(error), 1)
    except Exception as error:
        if not TRACEBACKS and raised_in(error) == "hydra":  # which has no error of its own for some mistakes
            fail(one_line(error), 2)
        if TRACEBACKS or not type(error).__module__.startswith("submitit."):
            raise
        # Slurm took no job, or a job died; what it wrote follows the first lines
        fail(" ".join(str(error).splitlines()[:2]) + " (python -m kvbench.status tells about every job)", 1)
    except (Stopped, KeyboardInterrupt) as stop:
        name, code = (stop.signal.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
        fail(f"stopped by {name}; every finished record is on the disk, and the same command goes on from here", code)


def raised_in(error: BaseException) -> str:
    """The package whose code raised an error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def fail(message: str, code: int) -> None:
    Console(stderr=True).print(f"[bold red]kvbench:[/] {escape(message)}", highlight=False, soft_wrap=True)
    raise SystemExit(code)


def one_line(error: BaseException) -> str:
    """An error of ours or of Hydra's as one sentence."""
    if isinstance(error, MissingConfigException) and "/" in str(error.missing_cfg_file):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if name.startswith("submitit"):
            return "hydra/launcher=slurm needs hydra-submitit-launcher: pip install 'kvbench[slurm]'"
        return str(unknown(group, name, error.options or choices(group)))
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        return str(unknown("key", str(cause.key), map(str, cause.parent_node.keys())))
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


def help_text() -> str:
    """What can be chosen and set, one line each, read from the YAML files."""
    width = max(len(name) for group in GROUPS for name in choices(group))
    lines = [
        "[bold]kvbench[/]: compare KV-cache compression methods on the same prompts, budgets and bytes",
        "",
        "  python -m kvbench                   needle in a haystack, embedded model, the methods of the README",
        "  python -m kvbench method=snapkv model=llama3-8b ratio=0.2",
        r"  python -m kvbench 'method=\[full,snapkv]' 'ratio=\[0.1,0.2]' 'benchmark.lengths=\[1024,4096]'",
        "  python -m kvbench -m +experiment=pyramidkv_table1",
        "  python -m kvbench +experiment=pyramidkv_table1 model=smollm2-135m limit=2     the same, scaled down",
    ]
    for group, (key, remark) in GROUPS.items():
        lines += ["", f"[bold]{key}[/]  {remark}".rstrip()]
        lines += [f"  [cyan]{name:<{width}}[/]  {escape(about)}" for name, about in options(group).items()]
    lines += ["", "[bold]Settings[/]"]
    lines += [f"  [cyan]{escape(f'{key:<33}')}[/]  {escape(comment)}" for key, comment in settings()]
    lines += [
        "",
        "-m runs a job for each combination of values: -m model=llama3-8b,mistral-7b-v0.2; with hydra/launcher=slurm",
        r"shards=8 'shard=range(0,8)' as a Slurm array. python -m kvbench.status \[FOLDER] tells how far the runs are.",
        "--cfg job prints the whole configuration; --hydra-help tells about Hydra;",
        "HYDRA_FULL_ERROR=1 shows the traceback behind an error.",
        "",
        "[bold]Other commands[/], each with --help",
        *(f"  python -m kvbench.[cyan]{name:<16}[/]  {about}" for name, about in COMMANDS.items()),
    ]
    return "\n".join(lines)


def settings() -> list[tuple[str, str]]:
    """The command line's keys with a comment on each: those of config.yaml, and what else is worth knowing."""
    commented = []
    for line in (CONF / "config.yaml").read_text(encoding="utf-8").splitlines():
        key, _, rest = line.partition(":")
        if key.isidentifier() and "#" in rest:
            value, _, comment = rest.partition("#")
            commented.append((f"{key}={value.strip()}", comment.strip()))
    return [
        *commented,
        ("decode.batch=auto", "the settings of a sample decode together; 1: one by one"),
        ("wandb.mode=disabled", "offline or online: Weights & Biases hears of the run, and can never stop it"),
        ("model.path=FOLDER", "a local copy of the model"),
        ("method.NAME.KEY=VALUE", "a method's own parameters, e.g. method.snapkv.scoring.window=16"),
        ("storage@method.NAME.storage=kivi", f"exchange a part: storage ({_names('storage')}),"),
        ("scoring@…, allocation@…", f"or scoring ({_names('scoring')}), allocation ({_names('allocation')})"),
        ("method._target_=module.Class", "a method of your own, run beside the chosen ones"),
    ]


def _names(group: str) -> str:
    return ", ".join(choices(group))


def choices(group: str) -> list[str]:
    """The names of a config group in natural order: table2 before table10."""
    stems = [file.stem for file in (CONF / group).glob("*.yaml")]
    return sorted(stems, key=lambda stem: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", stem)])


@cache
def options(group: str) -> dict[str, str]:
    """Name and one line about each choice of a config group."""
    read = {name: OmegaConf.load(CONF / group / f"{name}.yaml") for name in choices(group)}
    return {
        name: file.get("about") or OmegaConf.select(file, f"{group}.about", default="") for name, file in read.items()
    }
