"""Records made again: as runs make them, and with the model's sums rounded differently."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvbench.benchmarks import Sample
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.record import Failure, MethodRun
from kvbench.evaluation.settings import Setting
from kvbench.models import LoadedModel
from kvbench.records.identity import setting_hash
from kvbench.records.store import Store
from kvbench.runner.estimate import estimate_of
from kvbench.runner.progress import with_progress

Records = dict[tuple[str, str], dict[str, Any]]  # by sample and `setting_hash`: labels of two runs may be the same

# Standard deviation of the factors on the numbers of embedded tokens. They change keys and logits more than another
# kernel of a CPU does (docs/verify.md has the measurement). transformers computes norms and rotations of a float64
# model in float32.
NOISE = {torch.float64: 1.5e-5, torch.float32: 1.5e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
ROUNDINGS = 3


def answers(run: MethodRun, samples: Sequence[Sample], part: str) -> Records:
    """The records of samples under the run's settings; prints a line for each that cannot be made."""
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="kvbench-verify-") as folder, Store(Path(folder)) as store:
        estimate = estimate_of(run, samples, store.done, part)
        records = list(with_progress(evaluate(run, samples, store), run, samples, store, failures, estimate))
    return {(record["sample"], setting_hash(record)): record for record in records}


def rounded_otherwise(run: MethodRun, sample: Sample, settings: Sequence[Setting]) -> list[Records]:
    """The records of one sample under some settings, as by machines that round differently."""
    roundings = []
    for number in range(ROUNDINGS):
        with noise(run.loaded, number):
            part = f"rounding {number + 1} of {ROUNDINGS} for {sample.id}"
            roundings.append(answers(replace(run, settings=settings, decode_engine="eager"), [sample], part))
    return roundings


@contextmanager
def noise(loaded: LoadedModel, seed: int) -> Iterator[None]:
    """Within the block slightly different numbers enter the model's sums; the same ones for the same seed."""
    generator = torch.Generator(loaded.model.device).manual_seed(seed)

    def disturb(module: object, inputs: object, embedded: Tensor) -> Tensor:
        factors = torch.randn(embedded.shape, generator=generator, device=embedded.device)
        return (embedded * (1 + NOISE[embedded.dtype] * factors)).to(embedded.dtype)

    hook = loaded.model.get_input_embeddings().register_forward_hook(disturb)
    try:
        yield
    finally:
        hook.remove()
