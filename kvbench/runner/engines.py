"""What a configuration with `engine=` requests: engines in the place of methods."""

from collections.abc import Sequence
from typing import Any

from kvbench.benchmarks import Benchmark, Sample, Speed, Text
from kvbench.configuration import Configuration
from kvbench.engines.record import EngineRun
from kvbench.engines.settings import EngineSetting, engine_settings
from kvbench.errors import UserError
from kvbench.models import ModelSpec, TextModel, load_texts


def requested_engines(cfg: Configuration, benchmark: Benchmark) -> list[EngineSetting]:
    """The settings of a configuration's engines. Raises UserError for keys that only methods have."""
    of_methods = {
        "ratio": (cfg.ratio, None),
        "budget": (cfg.budget, None),
        "press": (cfg.press, None),
        "experiment": (cfg.plain["experiment"], None),
        "question": (cfg.question, "visible"),
        "first_token": (cfg.first_token, "full"),
        "memory": (cfg.memory, "shared"),
    }
    for key, (value, left) in of_methods.items():
        if value != left:
            raise UserError(f"{key}={value} is for methods of kvbench: engine=… reads whole prompts with its own cache")
    for key, value in {"decode.compress": cfg.decode.compress, "prefill.chunk": cfg.prefill.chunk}.items():
        if value is not None:
            raise UserError(f"{key}={value} is for methods of kvbench: leave it or engine= out")
    if cfg.probe:
        raise UserError("probe= observes kvbench's own caches: leave it or engine= out")
    if isinstance(benchmark, Speed):
        raise UserError("benchmark=speed measures kvbench's own caches: leave it or engine= out")
    return engine_settings(cfg.engine or {})


def connected(spec: ModelSpec, settings: list[EngineSetting], benchmark: Benchmark) -> TextModel:
    """The model's tokenizer and template, after every engine has said that it can answer for this model, and score
    texts where the benchmark has any.
    """
    texts = load_texts(spec)
    for setting in settings:
        setting.engine.connect(texts)
        if isinstance(benchmark, Text) and (why := setting.engine.cannot_score()):
            raise UserError(f"benchmark=text needs the probabilities of given tokens, and {setting.label!r}: {why}")
    return texts


def check_conversations(samples: Sequence[Sample], settings: Sequence[EngineSetting], distance: bool) -> None:
    """Raise UserError for conversations that continue from the model's own answers, for drawn answers where an engine
    does not draw, and for their distances.
    """
    if any(sample.own_answers for sample in samples):
        raise UserError("these samples continue from the model's own answers, which engine=… does not send back")
    drawn = any(sample.sampling for sample in samples)
    if drawn and (greedy := [setting.label for setting in settings if not setting.engine.draws]):
        raise UserError(f"the answers to these samples are drawn, and {greedy[0]!r} gives the likeliest tokens alone")
    if distance and drawn:
        raise UserError("distance=true follows a greedy answer, but the answers to these samples are sampled")


def told_by(run: EngineRun) -> dict[str, Any]:
    """For the manifest: what each engine says of itself."""
    return {
        "engines": {setting.label: {**setting.engine.parameters, **setting.engine.about} for setting in run.settings}
    }
