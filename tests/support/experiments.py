"""Files of conf/experiment, composed."""

from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kvbench.benchmarks.longbench.tasks import SETS
from kvbench.configuration import Configuration, Experiment, resolved
from kvbench.configuration.conf import CONF
from kvbench.papers.experiment import names

NAMES = names()


@cache
def composed(name: str, *overrides: str) -> tuple[Configuration, DictConfig]:
    """What `load` gives, and Hydra's own part of it; made once, to be read only."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose("config", [f"+experiment={name}", *overrides], return_hydra_config=True)
    run = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
    return resolved(run), whole.hydra


def config(name: str, model: str | None = None) -> Configuration:
    """The configuration for one of the experiment's models, its first one where none is named."""
    first = composed(name)[0]
    return first if model in (None, first.model.name) else composed(name, f"model={model}")[0]


def column_names(experiment: Experiment) -> list[str]:
    """The columns, each of LongBench's task sets as its tasks."""
    return [name for column in experiment.columns for name in SETS.get(column, (column,))]
