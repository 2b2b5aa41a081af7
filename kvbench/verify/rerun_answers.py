"""Records made again: as runs make them, and with each rounding of the model's sums decided otherwise."""

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

# Standard deviation of a factor on every number of the embedded tokens. Keys and logits then change more than by other
# kernels of a CPU (docs/verify.md has the measurement). transformers computes norms and rotations of a float64 model in
# float32.
NOISE = {torch.float64: 1.5e-5, torch.float32: 1.5e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
ROUNDINGS = 3


def answers(run: MethodRun, samples: Sequence[Sample], part: str) -> Records:
    """The records of samples under the run's settings; a line names each that cannot be made."""
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="kvbench-verify-") as folder, Store(Path(folder)) as store:
        estimate = estimate_of(run, samples, store.done, part)
        made = list(with_progress(evaluate(run, samples, store), run, samples, store, failures, estimate))
    return {(record["sample"], setting_hash(record)): record for record in made}


def rounded_otherwise(run: MethodRun, sample: Sample, settings: Sequence[Setting]) -> list[Records]:
    """The records of one sample under some settings as machines that round otherwise would make them."""
    answered = []
    for number in range(ROUNDINGS):
        with noise(run.loaded, number):
            part = f"rounding {number + 1} of {ROUNDINGS} for {sample.id}"
            answered.append(answers(replace(run, settings=settings, decode_engine="eager"), [sample], part))
    return answered


@contextmanager
def noise(loaded: LoadedModel, seed: int) -> Iterator[None]:
    """Within the block every sum of the model is rounded from slightly other numbers; the same ones for one seed."""
    drawn = torch.Generator(loaded.model.device).manual_seed(seed)

    def disturb(module: object, given: object, embedded: Tensor) -> Tensor:
        factors = torch.randn(embedded.shape, generator=drawn, device=embedded.device)
        return (embedded * (1 + NOISE[embedded.dtype] * factors)).to(embedded.dtype)

    hook = loaded.model.get_input_embeddings().register_forward_hook(disturb)
    try:
        yield
    finally:
        hook.remove()
