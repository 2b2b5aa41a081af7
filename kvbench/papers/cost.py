"""What an experiment costs: records and prompt tokens, from its configurations alone, before any data are read."""

from collections.abc import Mapping, Sequence

from kvbench.benchmarks.longbench import tasks as longbench
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.benchmarks.ruler import tasks as ruler
from kvbench.evaluation.settings import build_settings
from kvbench.papers.experiment import chosen_methods
from kvbench.probes import build_probes
from kvbench.utils.text import count

# Samples of LongBench v1's tasks (Bai et al. 2024, Table 1): 4,750 in all
LONGBENCH = dict.fromkeys(longbench.TASKS, 200) | {"multifieldqa_en": 150, "lcc": 500, "repobench-p": 500}
KVPRESS_RULER = 500  # samples of each task of the data set simonjegou/ruler


def cost(cfgs: Sequence[Mapping]) -> str:
    """One sentence about the configurations of an experiment, one for each model; empty where it is not known."""
    found = [(_settings(cfg), _prompts(cfg)) for cfg in cfgs]
    if any(prompts is None for _, prompts in found):
        return ""
    records = sum(settings * len(prompts) for settings, prompts in found)
    text = f"Cost: {count(records, 'record')}"
    if len({(settings, len(prompts)) for settings, prompts in found}) == 1:
        (settings, prompts), *_ = found
        models = f" × {count(len(found), 'model')}" if len(found) > 1 else ""
        text += f" ({count(settings, 'setting')} × {count(len(prompts), 'sample')}{models})"
    lengths = [length for _, prompts in found for length in prompts]
    if None in lengths:
        return f"{text}."
    tokens = count(sum(lengths), "token")
    return f"{text}; prompts of up to {tokens} before the chat template, read once by settings that share a prefill."


def _settings(cfg: Mapping) -> int:
    if cfg["probe"]:
        return len(build_probes(cfg["probe"]))
    return len(build_settings(chosen_methods(cfg), cfg["ratio"], cfg["budget"], cfg["decode"]["compress"]))


def _prompts(cfg: Mapping) -> list[int | None] | None:
    """The most tokens of each prompt (None: not known), the longest first where limit= takes some of them."""
    groups = _groups(cfg["benchmark"])
    if groups is None or cfg["limit"] is None:
        return groups and [length for lengths in groups.values() for length in lengths]
    in_order = (sorted(lengths, key=lambda length: -(length or 0)) for lengths in groups.values())
    return [length for lengths in in_order for length in lengths[: cfg["limit"]]]


def _groups(benchmark: Mapping) -> dict[str, list[int | None]] | None:
    """The prompts' lengths by task, of benchmarks that experiments have; None for others and for data of one's own."""
    kind = benchmark["_target_"].rpartition(".")[2]
    names = benchmark.get("tasks")
    names = [names] if isinstance(names, str) else names
    if benchmark.get("data_dir"):
        return None
    if kind == "LongBench":
        return {task.name: [benchmark["max_length"]] * LONGBENCH[task.name] for task in longbench.select(names)}
    if kind == "Ruler":
        each = [length for length in numbers(benchmark["lengths"]) for _ in range(benchmark["num_samples"])]
        return dict.fromkeys(ruler.select(names), each)
    if kind == "KVPressRuler":
        return dict.fromkeys(ruler.select(names), [None] * KVPRESS_RULER)
    if kind == "PyramidKVNeedle":
        depths = numbers(benchmark["depths"])
        return {"": [length for length in numbers(benchmark["lengths"]) for _ in depths]}
    if kind == "Speed":
        batches = benchmark["batches"] if isinstance(benchmark["batches"], list) else [benchmark["batches"]]
        cells = len(numbers(benchmark["lengths"])) * len(numbers(benchmark["new_tokens"])) * len(batches)
        return {"": [None] * cells}
    return None
