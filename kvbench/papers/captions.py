"""The captions of tables, figures and pages: what was run, on which model, under which protocol, on how much."""

from kvbench.configuration import Configuration
from kvbench.papers.deviations import deviations


def title(cfg: Configuration) -> str:
    """Paper and item, and in words how this run deviates from them; empty for a run of no experiment."""
    experiment = cfg.experiment
    if experiment is None:
        return ""
    smaller, other = deviations(cfg)
    parts = [f"scaled down: {'; '.join(smaller)}"] if smaller else []
    parts += [f"changed: {'; '.join(other)}"] if other else []
    return ", ".join([f"{experiment.paper} {experiment.item}", *parts])


def caption(title: str, benchmark: str, model: str, dtype: str, *rest: str) -> str:
    """One line: the experiment (empty for none), benchmark and model with its dtype, and what else matters.

    `dtype` is torch's name or several separated by commas, empty where it is unknown.
    """
    dtype = dtype.replace("torch.", "")
    named = f"{model} ({dtype})" if dtype else model
    return " · ".join(part for part in (title, benchmark, named, *rest) if part)
