"""The cost of an experiment, from its configurations alone, before data are read or a model is loaded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.benchmarks.planned import PromptSize
from kvbench.configuration import Configuration
from kvbench.evaluation.settings import Setting, settings_of
from kvbench.papers.gpu import GPU, H100
from kvbench.papers.gpu_estimate import Estimate, Shape, estimate
from kvbench.papers.prompts import prompt_sizes
from kvbench.papers.recorded_costs import gib_text, hours_text
from kvbench.probes import build_probes
from kvbench.utils.text import count


@dataclass(frozen=True)
class Cost:
    """The size of an experiment's runs, one for each model.

    runs       the numbers of settings (or probes) and of samples of each run.
    tokens     upper bound of the tokens of all prompts, before the chat template; None if it is not known.
    gpu_hours  estimated, see `kvbench.papers.gpu_estimate`; None if a model or a prompt has no known size.
    gib        estimated memory of the largest run in GiB; None as for gpu_hours.
    """

    runs: list[tuple[int, int]]
    tokens: int | None
    gpu_hours: float | None
    gib: float | None

    @property
    def records(self) -> int:
        return sum(settings * samples for settings, samples in self.runs)


def cost(cfgs: Sequence[Configuration], gpu: GPU = H100) -> Cost | None:
    """The cost of an experiment's configurations, one for each model; None if the samples are not known."""
    samples = [sizes for cfg in cfgs if (sizes := prompt_sizes(cfg)) is not None]
    if len(samples) < len(cfgs):
        return None
    settings = [[] if cfg.probe else settings_of(cfg) for cfg in cfgs]
    compared = [
        len(build_probes(cfg.probe)) if cfg.probe else len(chosen) for cfg, chosen in zip(cfgs, settings, strict=True)
    ]
    tokens = [size.tokens for sizes in samples for size in sizes if size.bounded and size.tokens is not None]
    bounded = len(tokens) == sum(map(len, samples))
    estimates = [
        estimate for run in zip(cfgs, settings, samples, strict=True) if (estimate := _estimate(*run, gpu)) is not None
    ]
    hours = gib = None
    if len(estimates) == len(cfgs):
        hours = sum(seconds for seconds, _ in estimates) / 3600
        gib = max(held for _, held in estimates) / 2**30
    runs = [(number, len(sizes)) for number, sizes in zip(compared, samples, strict=True)]
    return Cost(runs, sum(tokens) if bounded else None, hours, gib)


def cost_text(cfgs: Sequence[Configuration]) -> str:
    """The cost in sentences; empty if it is not known."""
    if (total := cost(cfgs)) is None:
        return ""
    text = f"Cost: {count(total.records, 'record')}"
    if len({*total.runs}) == 1:
        (settings, samples), *_ = total.runs
        models = f" × {count(len(total.runs), 'model')}" if len(total.runs) > 1 else ""
        text += f" ({count(settings, 'setting')} × {count(samples, 'sample')}{models})"
    if total.tokens is not None:
        tokens = count(total.tokens, "token")
        text += f"; all prompts together have at most {tokens}, and settings that share a prefill read them once"
    return f"{text}. {estimate_text(total)}".rstrip()


def estimate_text(total: Cost) -> str:
    """One sentence with the estimated GPU hours and memory and their assumptions; empty without an estimate."""
    if total.gpu_hours is None or total.gib is None:
        return ""
    return (
        f"Estimated for answers of full length: {hours_text(total.gpu_hours)} {H100.assumptions}; "
        f"{gib_text(total.gib)} in bfloat16 for weights, the longest prompt and the caches held with it or decoding "
        "together."
    )


def row_of(name: str, total: Cost) -> dict[str, str]:
    """An experiment's row of costs.csv."""
    hours, gib = ("" if number is None else f"{number:.3g}" for number in (total.gpu_hours, total.gib))
    return {"experiment": name, "records": str(total.records), "gpu_hours": hours, "gib": gib}


def _estimate(
    cfg: Configuration, settings: Sequence[Setting], sizes: Sequence[PromptSize], gpu: GPU
) -> Estimate | None:
    """GPU seconds and bytes of one run; probes read the prompt and decode nothing."""
    shape = Shape.from_model(cfg.model.shape, cfg.model.parameters)
    tokens = [size.tokens for size in sizes if size.tokens is not None]
    if shape is None or len(tokens) < len(sizes):
        return None
    if not cfg.probe:
        return estimate(shape, settings, sizes, cfg.decode.batch, gpu)
    flops = sum(samples * shape.flops(n) for n, samples in Counter(tokens).items())
    return Estimate(gpu.seconds(flops, 0), shape.weight_bytes + max(tokens) * shape.token_bytes)
