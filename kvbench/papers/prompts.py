"""The prompts of an experiment's benchmark, from its configuration alone, before any data are read."""

from kvbench.benchmarks.planned import PromptSize
from kvbench.configuration import Configuration
from kvbench.papers.columns import named_class


def prompt_sizes(cfg: Configuration) -> list[PromptSize] | None:
    """The size of every sample of a configuration; None for a benchmark that does not know them, and for data_dir.

    With limit= each task has its longest prompts, since the order of the samples is not known.
    """
    groups = None if cfg.benchmark.get("data_dir") else named_class(cfg.benchmark).prompt_sizes(cfg.benchmark)
    if groups is None:
        return None
    if cfg.limit is None:
        return [size for sizes in groups.values() for size in sizes]
    in_order = (sorted(sizes, key=lambda size: -(size.tokens or 0)) for sizes in groups.values())
    return [size for sizes in in_order for size in sizes[: cfg.limit]]
