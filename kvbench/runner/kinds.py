"""Kinds of records: of methods, of probes, of speed, of other engines and of servers under load."""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.benchmarks import Benchmark, Sample
from kvbench.configuration import Experiment
from kvbench.engines import evaluate as engines
from kvbench.engines.pace import pace_of
from kvbench.engines.serving import evaluate as serving
from kvbench.evaluation import evaluate, probes, speed
from kvbench.evaluation.check_samples import OURS, check_turns
from kvbench.evaluation.prompts import AnyModel
from kvbench.evaluation.record import Failure
from kvbench.models import ModelSpec, probe, weights_format
from kvbench.records.provenance import ADDED
from kvbench.records.schema import EngineRecord, ServeRecord
from kvbench.records.store import Store
from kvbench.runner.engines import check_conversations, connected, described_engines
from kvbench.runner.estimate import estimate_of
from kvbench.runner.kernels import computed_by

if TYPE_CHECKING:
    from kvbench.runner.outputs import Outputs  # brings matplotlib, which a mistake and a shard do without

Records = Iterator[dict[str, Any] | Failure]


class Kind(ABC):
    """A kind of records: how they are made, and how they are reported once all are there.

    `run` is a Run whose settings are of this kind.
    """

    columns: frozenset[str] = OURS  # of its records, which no sample may have
    goes_on: tuple[str, ...] = ("report", "compare", "frontier")  # commands for what a run of it has made
    compares = True  # whether its records can say how far a setting is from FullKV
    timed = False  # whether samples are lengths to time, whose text does not matter

    def stand_in(self, spec: ModelSpec, settings: Sequence[Any], benchmark: Benchmark) -> AnyModel | None:
        """A substitute for the model; None: the model is loaded with its weights."""
        return None

    def made_by(self, run: Any) -> dict[str, Any]:
        """For the manifest: the code that computes the records, and properties of the model that a probe measured."""
        model = run.loaded.model
        return computed_by(model) | probe.manifest_fields(model) | weights_format.manifest_fields(model.config)

    def check(self, samples: Sequence[Sample], settings: Sequence[Any], distance: bool) -> None:
        """Raise UserError for samples that are not defined for the settings."""
        check_turns(samples, settings, distance)

    def estimate(self, run: Any, samples: Sequence[Sample], done: Container[str], part: str) -> Any:
        """The time that is left; `part` names the run if a command has several."""
        return estimate_of(run, samples, done, part)

    @abstractmethod
    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        """Make the missing records; yields each."""

    def report(self, run: Any, folder: Path) -> "Outputs":
        """Write tables and figures."""
        from kvbench.runner import outputs

        return outputs.report(run, folder)


class OfMethods(Kind):
    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        return evaluate.evaluate(run, samples, store)


class OfProbes(Kind):
    goes_on = ()
    compares = False

    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        return probes.evaluate(run, samples, store)

    def report(self, run: Any, folder: Path) -> "Outputs":
        from kvbench.runner import outputs

        return outputs.report_probes(run, folder)


@dataclass(frozen=True)
class OfSpeed(Kind):
    experiment: Experiment | None  # its published values stand beside the measured ones
    columns = OURS - ADDED  # its samples name the version of torch, on which times depend
    goes_on = ("report",)
    compares = False
    timed = True

    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        return speed.evaluate(run, samples, store)

    def report(self, run: Any, folder: Path) -> "Outputs":
        from kvbench.runner import outputs

        return outputs.report_speed(run, folder, self.experiment)


class OfEngines(Kind):
    columns = frozenset(EngineRecord.model_fields) | ADDED
    goes_on: tuple[str, ...] = ("report", "compare")

    def stand_in(self, spec: ModelSpec, settings: Sequence[Any], benchmark: Benchmark) -> AnyModel:
        return connected(spec, list(settings), benchmark)

    def made_by(self, run: Any) -> dict[str, Any]:
        return described_engines(run)

    def check(self, samples: Sequence[Sample], settings: Sequence[Any], distance: bool) -> None:
        check_conversations(samples, settings, distance)

    def estimate(self, run: Any, samples: Sequence[Sample], done: Container[str], part: str) -> Any:
        return pace_of(run, samples, done, part)

    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        return engines.evaluate(run, samples, store)


class OfServing(OfEngines):
    goes_on = ("report",)
    compares = False
    columns = frozenset(ServeRecord.model_fields)

    def check(self, samples: Sequence[Sample], settings: Sequence[Any], distance: bool) -> None:
        """Loads are no prompts: those that are sent are tokenised before each load."""

    def estimate(self, run: Any, samples: Sequence[Sample], done: Container[str], part: str) -> Any:
        return pace_of(run, samples, done, part, rated=False)

    def evaluate(self, run: Any, samples: Sequence[Sample], store: Store) -> Records:
        return serving.evaluate(run, samples, store)

    def report(self, run: Any, folder: Path) -> "Outputs":
        from kvbench.runner import outputs

        return outputs.report_serving(run, folder)
