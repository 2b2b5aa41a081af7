"""The command line of `table` and `figure`: help, arguments, and the configurations of the overrides."""

from collections.abc import Sequence

from hydra import initialize_config_dir

from kvbench.configuration import Configuration, configured
from kvbench.configuration.conf import hydra_folder, options, sweep_jobs
from kvbench.papers.experiment import named_by
from kvbench.utils.arguments import Parser


def parser(command: str, about: str) -> Parser:
    """The parser of a command that shows an experiment's records; each command adds its options."""
    arguments = Parser(command, about, _experiments)
    arguments.add_argument("-m", "--multirun", action="store_true", help="allowed, as in the command of the runs")
    arguments.overrides("+experiment=NAME and overrides of its runs: model=smollm2-135m benchmark.tasks=[qasper] ...")
    arguments.setting(
        "runs=FOLDER", "folders of runs, or of one run, with the records; default: output_dir", folders, several=True
    )
    return arguments


def folders(text: str) -> list[str]:
    """The folders of runs=A or runs=[A,B]."""
    return [part.strip() for part in text.strip("[]").split(",") if part.strip()]


def _experiments() -> str:
    width = max(map(len, options("experiment")))
    return "\n".join(
        ["experiments:", *(f"  {name:<{width}}  {about}" for name, about in options("experiment").items())]
    )


def configurations(overrides: Sequence[str]) -> list[Configuration]:
    """The distinct configurations of `+experiment=NAME` with more overrides.

    Values separated by commas give one configuration each, as in `kvbench -m`. Without a `model=` override there is
    one for each of the experiment's models. Raises UserError without an experiment.
    """
    cfgs: list[Configuration] = []
    with initialize_config_dir(hydra_folder(), version_base="1.3"):
        for job in jobs(overrides):
            cfg = configured(job)
            experiment = named_by(cfg)
            named = any(override.startswith("model=") for override in job)
            for model in [cfg.model.name] if named else experiment.models:
                cfgs.append(cfg if model == cfg.model.name else configured([*job, f"model={model}"]))
    return [cfg for i, cfg in enumerate(cfgs) if cfg not in cfgs[:i]]


def jobs(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """The override lists of a sweep's jobs, without shards and Hydra's settings, which do not change records."""
    expanded = [tuple(override for override in job if _matters(override)) for job in sweep_jobs(overrides)]
    return list(dict.fromkeys(expanded))


def _matters(override: str) -> bool:
    key = override.partition("=")[0]
    return not (key in ("shard", "shards") or key.startswith("hydra"))
