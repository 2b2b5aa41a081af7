"""The experiments of conf/experiment by name, and the experiment of a configuration."""

from kvbench.configuration import Configuration, Experiment, configured
from kvbench.configuration.conf import choices
from kvbench.errors import UserError


def named_by(cfg: Configuration) -> Experiment:
    """The experiment of a configuration. Raises UserError if it has none."""
    if cfg.experiment is None:
        raise UserError(f"name an experiment: +experiment=NAME. Allowed: {', '.join(names())}")
    return cfg.experiment


def names() -> list[str]:
    """The names of all experiments in conf/experiment, as in `+experiment=NAME`."""
    return choices("experiment")


def load(name: str, *overrides: str) -> Configuration:
    """The whole configuration of `+experiment=name` with more overrides. Raises UserError for an unknown name.

    While a command runs, the files of its --config-dir count, too.
    """
    return configured([f"+experiment={name}", *overrides])
