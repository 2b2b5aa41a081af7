"""The captions of tables, figures and pages: experiment, benchmark, model, protocol, amount of data."""

from kvbench.configuration import Configuration
from kvbench.papers.deviations import deviations


def title(cfg: Configuration) -> str:
    """Paper and item, and this run's deviations from the experiment in words; empty for a run without experiment."""
    experiment = cfg.experiment
    if experiment is None:
        return ""
    smaller, other = deviations(cfg)
    parts = [f"scaled down: {'; '.join(smaller)}"] if smaller else []
    parts += [f"changed: {'; '.join(other)}"] if other else []
    return ", ".join([f"{experiment.paper} {experiment.item}", *parts])


def protocol_words(cfg: Configuration) -> list[str]:
    """What the name of a file adds for a protocol, so that it replaces no file of the default one."""
    return ["hidden"] * (cfg.question == "hidden") + ["compressed-first-token"] * (cfg.first_token == "compressed")


def caption(title: str, benchmark: str, model: str, dtype: str, *rest: str) -> str:
    """One line: the experiment (may be empty), the benchmark, the model with its dtype, and further parts `rest`.

    `dtype` is torch's name, or several names separated by commas; empty if it is unknown.
    """
    dtype = dtype.replace("torch.", "")
    named = f"{model} ({dtype})" if dtype else model
    return " · ".join(part for part in (title, benchmark, named, *rest) if part)
