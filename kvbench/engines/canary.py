"""Whether a server is still the one that gave the earlier answers, and whether it computes what it was asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.engines.base import CannotAnswer, Session
from kvbench.engines.questions import ended, question
from kvbench.engines.record import EngineRun
from kvbench.engines.settings import EngineSetting
from kvbench.evaluation.record import Failure
from kvbench.utils.console import warn
from kvbench.utils.sequences import common_prefix

FIRST = 3  # answers that show whether a setting computes anything like the baseline


@dataclass
class Canary:
    """Asks a sample again whose record is there: at the beginning of a run that goes on, and at its end."""

    run: EngineRun
    setting: EngineSetting
    session: Session
    samples: Mapping[str, Sample]  # by the keys of their records
    record: Mapping[str, Any] | None  # an earlier run's; None: this run's first

    def see(self, result: Mapping[str, Any] | Failure) -> None:
        if self.record is None and not isinstance(result, Failure):
            self.record = result

    def ask(self, when: str) -> None:
        """Warn where the answer is another one. Drawn answers and scored texts are left out."""
        if self.record is None or (sample := self.samples[self.record["key"]]).sampling or sample.continuation:
            return
        asked = question(self.run.loaded, sample)
        try:
            _, again = ended(asked, self.session.complete(asked, 0), self.run.loaded)
        except CannotAnswer:
            return
        if again != self.record["prediction"]:
            warn(
                f"{self.setting.label}: asked again {when}, sample {sample.id!r} has another answer than in its "
                "record: the server has changed, or it gives several answers to one prompt (the line below the table "
                "says how often)"
            )


@dataclass
class Likeness:
    """Warns where a setting's first answers have nothing of the baseline's: it may compute something else."""

    label: str
    baseline: Mapping[str, Mapping[str, Any]]  # records by sample
    shares: list[float] = field(default_factory=list)

    def see(self, result: Mapping[str, Any] | Failure) -> None:
        if isinstance(result, Failure) or len(self.shares) == FIRST:
            return
        reference = self.baseline.get(result["sample"])
        if reference is None or not reference["prediction"]:
            return
        self.shares.append(_share(result, reference))
        if len(self.shares) == FIRST and not any(self.shares):
            warn(
                f"{self.label}: none of its first {FIRST} answers begins as the baseline's: does this engine compute "
                "with that type here? (some builds accept types that they do not compute with)"
            )


def _share(result: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """Of an answer, by tokens where both have them, the share before the first difference."""
    pair: Sequence[Sequence[object]] = [one["tokens"] for one in (result, reference)]
    if None in pair:
        pair = [one["prediction"] for one in (result, reference)]
    return common_prefix(*pair) / max(*map(len, pair), 1)
