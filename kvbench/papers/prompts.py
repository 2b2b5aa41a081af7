"""The prompts of an experiment's benchmark, from its configuration alone, before any data are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.benchmarks.longbench import tasks as longbench
from kvbench.benchmarks.niah.ranges import integers, numbers
from kvbench.benchmarks.ruler import tasks as ruler
from kvbench.configuration import Configuration

# Samples of LongBench v1's tasks (Bai et al. 2024, Table 1): 4,750 in all
LONGBENCH = dict.fromkeys(longbench.TASKS, 200) | {"multifieldqa_en": 150, "lcc": 500, "repobench-p": 500}
KVPRESS_RULER = 500  # samples of each task of the data set simonjegou/ruler


@dataclass(frozen=True)
class PromptSize:
    """The size of one sample: tokens of its prompt (None: not known), and the largest number of tokens of its answer.

    bounded  whether the prompt never has more than `tokens` tokens, with any tokeniser.
    batch    sequences that decode the prompt together, in a run of benchmark=speed; None: as many as fit.
    repeats  how often each setting reads and answers it.
    """

    tokens: int | None
    new_tokens: int
    bounded: bool = True
    batch: int | None = 1
    repeats: int = 1


def prompt_sizes(cfg: Configuration) -> list[PromptSize] | None:
    """The size of every sample of a configuration; None for a benchmark that no experiment has, and for data_dir.

    With limit= each task has its longest prompts, since the order of the samples is not known.
    """
    groups = _groups(cfg.benchmark)
    if groups is None:
        return None
    if cfg.limit is None:
        return [size for sizes in groups.values() for size in sizes]
    in_order = (sorted(sizes, key=lambda size: -(size.tokens or 0)) for sizes in groups.values())
    return [size for sizes in in_order for size in sizes[: cfg.limit]]


def _groups(benchmark: Mapping[str, Any]) -> dict[str, list[PromptSize]] | None:
    """The samples by task."""
    kind = benchmark["_target_"].rpartition(".")[2]
    if benchmark.get("data_dir") or kind not in KINDS:
        return None
    names = benchmark.get("tasks")
    return KINDS[kind](benchmark, [names] if isinstance(names, str) else names)


def _whole(value: object) -> list[int]:
    """Numbers of tokens in any form that a configuration may have."""
    return [int(number) for number in integers(value)]


def _longbench(benchmark: Mapping[str, Any], names: list[str]) -> dict[str, list[PromptSize]]:
    length = benchmark["max_length"]
    return {
        task.name: [PromptSize(length, task.max_new_tokens)] * LONGBENCH[task.name] for task in longbench.select(names)
    }


def _ruler(benchmark: Mapping[str, Any], names: list[str]) -> dict[str, list[PromptSize]]:
    lengths = [length for length in _whole(benchmark["lengths"]) for _ in range(benchmark["num_samples"])]
    return {
        task: [PromptSize(length, ruler.TASKS[task].max_new_tokens) for length in lengths]
        for task in ruler.select(names)
    }


def _kvpress_ruler(benchmark: Mapping[str, Any], names: list[str]) -> dict[str, list[PromptSize]]:
    """Lengths are in tokens of Llama-3.1-8B, so other models may have more tokens."""
    return {
        task: [PromptSize(benchmark["length"], ruler.TASKS[task].max_new_tokens, bounded=False)] * KVPRESS_RULER
        for task in ruler.select(names)
    }


def _needle(benchmark: Mapping[str, Any], names: None) -> dict[str, list[PromptSize]]:
    depths, new_tokens = numbers(benchmark["depths"]), benchmark["max_new_tokens"]
    return {"": [PromptSize(length, new_tokens) for length in _whole(benchmark["lengths"]) for _ in depths]}


def _speed(benchmark: Mapping[str, Any], names: None) -> dict[str, list[PromptSize]]:
    batches = benchmark["batches"] if isinstance(benchmark["batches"], list) else [benchmark["batches"]]
    repeats = benchmark["repeats"] + benchmark["warmup"]
    return {
        "": [
            PromptSize(length, new, False, batch if isinstance(batch, int) else None, repeats)
            for length in _whole(benchmark["lengths"])
            for new in _whole(benchmark["new_tokens"])
            for batch in batches
        ]
    }


KINDS: dict[str, Callable[[Mapping[str, Any], Any], dict[str, list[PromptSize]]]] = {
    "LongBench": _longbench,
    "Ruler": _ruler,
    "KVPressRuler": _kvpress_ruler,
    "PyramidKVNeedle": _needle,
    "Speed": _speed,
}
