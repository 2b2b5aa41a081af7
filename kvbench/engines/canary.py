"""Checks that a server still gives its earlier answers, and that a setting computes anything like the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.engines.base import CannotAnswer, Session
from kvbench.engines.questions import asked_again, question
from kvbench.engines.record import EngineRun
from kvbench.engines.settings import EngineSetting
from kvbench.evaluation.record import Failure
from kvbench.utils.console import warn
from kvbench.utils.sequences import common_prefix

FIRST = 3  # number of first answers that are compared with the baseline's


@dataclass
class Canary:
    """Asks a recorded sample again: at the beginning of a continued run, and at the end of a run."""

    run: EngineRun
    setting: EngineSetting
    session: Session
    samples: Mapping[str, Sample]  # by the keys of their records
    record: Mapping[str, Any] | None  # a record of an earlier run; None: the first record of this run

    def see(self, result: Mapping[str, Any] | Failure) -> None:
        if self.record is None and not isinstance(result, Failure):
            self.record = result

    def ask(self, when: str) -> None:
        """Warn if the answer differs from the record or is not whole. Drawn answers and scored texts are not asked
        again."""
        if self.record is None or (sample := self.samples[self.record["key"]]).sampling or sample.continuation:
            return
        asked = question(self.run.loaded, sample)
        try:
            again = asked_again(self.session, asked, self.run.loaded, self.setting.engine.chats)
        except CannotAnswer as error:
            warn(f"{self.setting.label}: asked again {when}, sample {sample.id!r} has no answer: {error}")
            return
        if again != self.record["prediction"]:
            warn(
                f"{self.setting.label}: asked again {when}, sample {sample.id!r} has another answer than in its "
                "record: the server has changed, or it gives different answers to the same prompt (the line below the "
                "table says how often)"
            )


@dataclass
class Likeness:
    """Warns if none of a setting's first answers begins like the baseline's: it may compute something else."""

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
                f"{self.label}: none of its first {FIRST} answers begins like the baseline's: does this engine compute "
                "with this cache type on this machine? (some builds accept types that they do not compute with)"
            )


def _share(result: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """The share of an answer before the first difference, by tokens if both records have them, else by characters."""
    records = result, reference
    pair: Sequence[Sequence[object]] = [record["tokens"] for record in records]
    if None in pair:
        pair = [record["prediction"] for record in records]
    return common_prefix(*pair) / max(*map(len, pair), 1)
