"""Faults of samples that are found before the first of them is run."""

from collections.abc import Sequence

from kvbench.benchmarks import Benchmark, Sample
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.models import LoadedModel
from kvbench.records.schema import MethodRecord

OURS = frozenset(MethodRecord.model_fields)


def check_samples(loaded: LoadedModel, benchmark: Benchmark, samples: Sequence[Sample], question: str) -> None:
    """Raise UserError for a sample whose columns a record has already.

    Where the benchmark does not know its longest prompt, also for one that does not fit the model or, with
    question=hidden, has no context before its question.
    """
    for sample in samples:
        if taken := OURS & sample.meta.keys():
            raise UserError(f"sample {sample.id!r}: meta cannot have {min(taken)!r}, a field of every record")
        if benchmark.longest is None:
            tokenise(loaded, sample, question)
