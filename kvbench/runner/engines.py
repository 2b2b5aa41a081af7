"""The engines that a configuration with `engine=` requests instead of methods."""

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from kvbench.benchmarks import Benchmark, Sample, Speed, Text
from kvbench.configuration import Configuration
from kvbench.configuration.conf import chosen_by_default
from kvbench.engines.base import Engine
from kvbench.engines.questions import is_chat
from kvbench.engines.record import EngineRun
from kvbench.engines.serving.guidellm import guidellm
from kvbench.engines.settings import EngineSetting, engine_settings
from kvbench.errors import UserError
from kvbench.models import ModelSpec, TextModel, load_texts


def requested_engines(cfg: Configuration, benchmark: Benchmark) -> list[EngineSetting]:
    """The settings of a configuration's engines. Raises UserError for keys that only methods have."""
    method_keys = {
        "ratio": (cfg.ratio, None),
        "budget": (cfg.budget, None),
        "press": (cfg.press, None),
        "experiment": (cfg.plain["experiment"], None),
        "question": (cfg.question, "visible"),
        "first_token": (cfg.first_token, "full"),
        "memory": (cfg.memory, "shared"),
    }
    for key, (value, default) in method_keys.items():
        if value != default:
            raise UserError(f"{key}={value} is for methods of kvbench: engine=… reads whole prompts with its own cache")
    for key, value in {"decode.compress": cfg.decode.compress, "prefill.chunk": cfg.prefill.chunk}.items():
        if value is not None:
            raise UserError(f"{key}={value} is for methods of kvbench: leave it or engine= out")
    names = [name for name in cfg.methods if name != "_target_"]
    if (own := cfg.methods.get("_target_")) or names != chosen_by_default("method"):
        chosen = f"method._target_={own}" if own else f"method=[{','.join(names)}]"
        raise UserError(
            f"{chosen} is for methods of kvbench, in whose place engine=… answers: a command without engine= makes "
            "their records, in the same folder"
        )
    if cfg.probe:
        raise UserError("probe= observes kvbench's own caches: leave it or engine= out")
    if isinstance(benchmark, Speed):
        raise UserError("benchmark=speed measures kvbench's own caches: leave it or engine= out")
    settings = engine_settings(cfg.engine or {})
    for one, other in combinations(settings, 2):
        if why := one.engine.cannot_stand_beside(other.engine):
            raise UserError(why)
    return settings


def check_serving(settings: Sequence[EngineSetting]) -> None:
    """Raise UserError where servers cannot be loaded: the tool is not installed, or a setting has no server."""
    guidellm()
    for setting in settings:
        if why := setting.engine.cannot_serve():
            raise UserError(f"benchmark=serve needs servers, and {setting.label!r}: {why}")


def connected(spec: ModelSpec, settings: list[EngineSetting], benchmark: Benchmark) -> TextModel:
    """Connect every engine; returns the model's tokenizer and template.

    Raises UserError for an engine that does not serve this model, or cannot score the benchmark's texts.
    """
    texts = load_texts(spec)
    for setting in settings:
        setting.engine.connect(texts)
        check_description(setting.engine)
        if isinstance(benchmark, Text) and (why := setting.engine.cannot_score()):
            raise UserError(f"benchmark=text needs the probabilities of given tokens, and {setting.label!r}: {why}")
    return texts


def check_description(engine: Engine) -> None:
    """Raise UserError for a connected engine whose parameters or description records cannot hold."""
    for name in ("parameters", "about"):
        value = getattr(engine, name, None)
        if not isinstance(value, dict):
            raise UserError(f"{type(engine).__name__}.{name}={value!r} must be a dict once the engine is connected")
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{type(engine).__name__}.{name}={value!r} must be what JSON holds: {error}") from error


def check_conversations(samples: Sequence[Sample], settings: Sequence[EngineSetting], distance: bool) -> None:
    """Raise UserError for conversations with the model's own answers, for sampled answers if an engine does not sample,
    and for distances of sampled answers.
    """
    if any(sample.own_answers for sample in samples):
        raise UserError("these samples continue from the model's own answers, which engine=… does not send back")
    if any(setting.engine.chats for setting in settings) and not all(map(is_chat, samples)):
        raise UserError(
            "engine.mode=chat sends only messages, but these samples are raw text, begin the answer or score a text: "
            "engine.mode=completions, or another benchmark"
        )
    drawn = any(sample.sampling for sample in samples)
    if drawn and (greedy := [setting.label for setting in settings if not setting.engine.draws]):
        raise UserError(f"the answers to these samples are sampled, but {greedy[0]!r} decodes greedily")
    if distance and drawn:
        raise UserError("distance=true follows a greedy answer, but the answers to these samples are sampled")


def described_engines(run: EngineRun) -> dict[str, Any]:
    """For the manifest: each engine's parameters and its own description."""
    return {
        "engines": {setting.label: {**setting.engine.parameters, **setting.engine.about} for setting in run.settings}
    }
