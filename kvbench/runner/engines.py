"""What a configuration with `engine=` requests: engines in the place of methods."""

from collections.abc import Mapping, Sequence

from kvbench.benchmarks import Benchmark, Sample, Speed, Text
from kvbench.engines.settings import EngineSetting, engine_settings
from kvbench.errors import UserError
from kvbench.evaluation.record import Run
from kvbench.models import TextModel, load_texts
from kvbench.models.spec import ModelSpec

# Keys of methods, and the value that an engine's run has to leave.
OF_METHODS = {"ratio": None, "budget": None, "press": None, "experiment": None, "question": "visible"}
OF_METHODS |= {"first_token": "full"}
OF_METHODS |= {"memory": "shared"}


def requested_engines(cfg: Mapping, benchmark: Benchmark) -> list[EngineSetting]:
    """The settings of a configuration's engines. Raises UserError for keys that only methods have."""
    for key, value in OF_METHODS.items():
        if cfg[key] != value:
            raise UserError(
                f"{key}={cfg[key]} is for methods of kvbench: engine=… reads whole prompts with its own cache"
            )
    for key in ("decode.compress", "prefill.chunk"):
        node, name = key.split(".")
        if cfg[node][name] is not None:
            raise UserError(f"{key}={cfg[node][name]} is for methods of kvbench: leave it or engine= out")
    if cfg["probe"]:
        raise UserError("probe= observes kvbench's own caches: leave it or engine= out")
    if isinstance(benchmark, Speed):
        raise UserError("benchmark=speed measures kvbench's own caches: leave it or engine= out")
    return engine_settings(cfg["engine"])


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


def told_by(run: Run) -> dict:
    """For the manifest: what each engine says of itself."""
    return {
        "engines": {setting.label: {**setting.engine.parameters, **setting.engine.about} for setting in run.settings}
    }
