"""Faults of samples, found before the first sample is run."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

from kvbench.benchmarks import Benchmark, Sample
from kvbench.errors import UserError
from kvbench.evaluation.prompts import AnyModel, tokenise
from kvbench.evaluation.record import AnyRun
from kvbench.evaluation.settings import Setting, is_full
from kvbench.models import LoadedModel
from kvbench.models.layer_kinds import kinds_of, window_of_all
from kvbench.records.load import PROPERTIES
from kvbench.records.provenance import ADDED
from kvbench.records.schema import MethodRecord
from kvbench.records.store import keys_in

OURS = frozenset(MethodRecord.model_fields) | ADDED


def check_samples(
    loaded: AnyModel,
    benchmark: Benchmark,
    samples: Sequence[Sample],
    question: str,
    columns: Collection[str] = OURS,
    first_token: str = "full",
    timed: bool = False,
) -> None:
    """Raise UserError for a sample with a column that every record has (`columns`), or one that cannot be grouped by.

    With question=hidden also for a sample without its own question. If the benchmark does not know its longest
    prompt, or if the model's frequencies change with the length of the text, also for a sample that does not fit the
    model or has no context to compress under `question` and `first_token`. Of `timed` samples only the lengths matter.
    The error begins with the sample's place, where the benchmark knows it. An id that is no text, and two samples with
    one id, are refused, too: records are kept by it.
    """
    for given in (cast(object, sample.id) for sample in samples):
        if not isinstance(given, str):
            raise UserError(f"a sample of {benchmark.name} has the id {given!r}: it must be a text")
    for name, number in Counter(sample.id for sample in samples).items():
        if number > 1:
            raise UserError(f"{number} samples of {benchmark.name} have the id {name!r}: each needs one of its own")
    measured = benchmark.longest is None or (loaded.growth is not None and not timed)
    for sample in samples:
        try:
            _check_sample(sample, columns)
            if measured or (question == "hidden" and not sample.question):
                tokenise(loaded, sample, question, first_token)
        except UserError as error:
            raise UserError(f"{place}: {error}" if (place := benchmark.place_of(sample)) else str(error)) from error


def _check_sample(sample: Sample, columns: Collection[str]) -> None:
    if clashes := sample.meta.keys() & columns:
        raise UserError(f"sample {sample.id!r}: meta cannot have {min(clashes)!r}, a column of every record")
    for name in PROPERTIES:
        if isinstance(value := sample.meta.get(name), list | dict):
            raise UserError(f"sample {sample.id!r}: {name}={value!r} of its meta must be one text or number")


def check_windows(run: AnyRun, samples: Sequence[Sample], folder: Path, timed: bool = False) -> None:
    """Raise UserError for a text longer than the sliding window that every layer of the model has, under a setting that
    compresses these layers, unless its record is in `folder`. An answer counts as long as it may be.

    Prompts of `timed` samples are as long as they say.
    """
    settings = [setting for setting in run.settings if isinstance(setting, Setting) and not is_full(setting)]
    if not settings or not isinstance(run.loaded, LoadedModel):
        return
    if (window := window_of_all(kinds_of(run.loaded.config))) is None:
        return
    done = keys_in(folder)
    for sample in samples:
        missing = [setting for setting in settings if run.key(sample, setting) not in done]
        if not missing:
            continue
        if timed:
            context, new = sample.meta["length"], sample.max_new_tokens
        else:
            prompt = tokenise(run.loaded, sample, run.question, run.first_token)
            context, new = len(prompt.context), prompt.new_tokens
        if context >= window or context + new - 1 > window:  # the last new token is never read
            raise UserError(
                f"{missing[0].label}: sample {sample.id!r} has {context} tokens to compress and up to {new} after "
                f"them, and every layer of {run.loaded.spec.name} has a sliding window of {window}: only method=full "
                "goes beyond it; use shorter prompts and answers"
            )


def check_turns(samples: Sequence[Sample], settings: Sequence[Any], distance: bool) -> None:
    """Raise UserError for settings (or probes) and distances that conversations or drawn answers do not define."""
    turns = next((sample for sample in samples if sample.turns), None)
    own_answers = any(sample.own_answers for sample in samples)
    _check_limits([sample for sample in samples if sample.own_answers])
    for setting in settings:
        method = getattr(setting, "method", None)
        if own_answers and method is None:
            raise UserError("probes read prompts without the model's own answers, which these samples continue from")
        if turns is not None and getattr(method, "ratio_of", None) == "total":
            raise UserError(
                f"{setting.label!r} takes a share of prompt and answer together, which differs from turn to turn of "
                f"sample {turns.id!r}: use a share of the prompt, or a budget"
            )
    if distance and any(sample.sampling for sample in samples):
        raise UserError("distance=true follows FullKV's greedy answer, but the answers to these samples are sampled")
    if own_answers and distance:
        raise UserError(
            "distance=true compares settings on equal texts, but the model's own answers differ between settings"
        )


def _check_limits(samples: Sequence[Sample]) -> None:
    """Raise UserError where an answer of the model's own has another limit in its sample than in a later turn's: one
    answer is decoded for both."""
    limits = {(sample.prompt, sample.turns): (sample.id, sample.max_new_tokens) for sample in samples}
    for sample in samples:
        for number, turn in enumerate(sample.turns):
            answered, limit = limits.get((sample.prompt, sample.turns[:number]), ("", turn.max_new_tokens))
            if limit != turn.max_new_tokens:
                raise UserError(
                    f"sample {answered!r} has max_new_tokens={limit}, but sample {sample.id!r}, which continues from "
                    f"its answer, has a turn with max_new_tokens={turn.max_new_tokens}: give both the same"
                )
