"""How long a run takes: finished samples give the seconds of the work that prompts and settings are predicted to be."""

import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from kvbench.benchmarks import Sample, Speed
from kvbench.engines.pace import Seconds
from kvbench.evaluation.prefill_passes import num_layers
from kvbench.evaluation.prompts import together
from kvbench.evaluation.record import AnyRun, Choice, ModelRun
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.shared_work import shared_work
from kvbench.models.flops import forward_flops
from kvbench.models.layer_kinds import kinds_of
from kvbench.models.token_numbers import heads_of
from kvbench.records.identity import prefill_of
from kvbench.runner.finished_work import NOTHING, Cost, Finished

UNIT = 256  # predicted work is in prefills of so many tokens
# The time of a decoded token in the same unit, on a CPU. It counts only if records have no time of their prefill:
# otherwise finished samples give prefill and decoding a factor each.
STEP = 0.05
WORTH = 1e12  # floating-point operations from which a run is announced; fewer end before an estimate is of use
# A setting in a batch takes this share of the time that it takes alone: on two CPUs, twelve settings decode 3.9 to 6.0
# times as fast in a batch as one after the other.
IN_BATCH = 0.3
# The range of the other samples' time, as factors of the predicted time, when one sample is finished.
AFTER_ONE = (0.6, 1.7)
SURE = 0.15  # a range narrower than this, on either side, is shown as one number


class Factors(NamedTuple):
    """Measured seconds per unit of predicted work."""

    prefill: float
    rest: float


def prompt_tokens(run: AnyRun, samples: Sequence[Sample]) -> dict[str, int]:
    """About how many tokens each prompt has: its characters, at the rate of the longest prompt."""
    if isinstance(run.benchmark, Speed):
        return {sample.id: sample.meta["length"] for sample in samples}
    longest = max((sample.prompt for sample in samples), key=len, default="")
    rate = len(run.loaded.plain_tokens(longest)) / max(len(longest), 1)
    return {sample.id: round(len(sample.prompt) * rate) for sample in samples}


def prompt_flops(model: PreTrainedModel) -> Callable[[int], float]:
    """`forward_flops` of a loaded model as a function of the prompt's tokens; its weights are counted once."""
    heads, _, width = heads_of(model.config)
    windows = [kind.window for kind in kinds_of(model.config) if kind.attends]
    return partial(forward_flops, model.num_parameters(), windows, heads, width)


def costs(
    run: ModelRun, samples: Sequence[Sample], missing: Mapping[str, Sequence[Choice]], tokens: Mapping[str, int]
) -> dict[str, Cost]:
    """The cost of each sample that lacks records under the settings `missing`.

    A context that several questions share is prefilled for the first. Probes read it in one pass and decode nothing.
    """
    flops, by_sample = prompt_flops(run.loaded.model), {}
    for group in together(samples, run.question):
        group = [sample for sample in group if missing.get(sample.id)]
        for place, sample in enumerate(group):
            n, records = tokens[sample.id], len(missing[sample.id])
            prefill = flops(n) / flops(UNIT)
            if isinstance(run.benchmark, Speed):  # every setting alone, several times
                times, batch = records * rounds(run), sample.meta["batch"]
                decode = STEP * sample.max_new_tokens * _together(batch if isinstance(batch, int) else 1)
                cost = Cost(times * prefill, times * decode, records)
            else:
                settings = [choice for choice in missing[sample.id] if isinstance(choice, Setting)]
                works = shared_work(settings, n, max(num_layers(run.loaded.model, n), 1), run.batch)
                steps = sum(_together(sequences) for work in works for sequences in work.passes)
                prefills = (len(works) or 1) if place == 0 else 0
                cost = Cost(prefills * prefill, STEP * sample.max_new_tokens * steps, records)
            by_sample[sample.id] = cost
    return by_sample


def rounds(run: AnyRun) -> int:
    """How often a record's prompt is prefilled."""
    return run.benchmark.warmup + run.benchmark.repeats if isinstance(run.benchmark, Speed) else 1


def _together(sequences: int) -> float:
    """The time of a batch's step over that of one sequence."""
    return max(1.0, IN_BATCH * sequences)


def estimate_of(run: ModelRun, samples: Sequence[Sample], done: Container[str], part: str) -> "Estimate":
    """The estimate for the records of `samples` that are not done; `part` names the run if a command has several."""
    missing = {s.id: [setting for setting in run.settings if run.key(s, setting) not in done] for s in samples}
    samples = [sample for sample in samples if missing[sample.id]]
    tokens = prompt_tokens(run, samples)
    flops = prompt_flops(run.loaded.model)
    work = sum(flops(tokens[sample.id] + sample.max_new_tokens * len(missing[sample.id])) for sample in samples)
    predicted = costs(run, samples, missing, tokens)
    return Estimate(predicted, tokens, long=work >= WORTH, part=part, rounds=rounds(run))


class Estimate:
    """The time that is left, from predicted costs and the times of the samples that are finished."""

    rate = ""  # tokens per second, which records have

    def __init__(
        self,
        costs: Mapping[str, Cost],
        tokens: Mapping[str, int],
        long: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        part: str = "",
        rounds: int = 1,
    ):
        """long: whether the run is announced. rounds: prefills of which a record has the (median) time of one."""
        self.left_of = {sample: cost.records for sample, cost in costs.items()}
        self.order = deque(sample for sample, records in self.left_of.items() if records > 0)
        self.ahead = len(self.order)  # unfinished samples
        self.work_ahead = sum((costs[sample] for sample in self.order), NOTHING)  # predicted
        self.current = costs[self.order[0]] if self.order else NOTHING  # predicted, of the first unfinished sample
        self.costs, self.tokens, self.clock, self.part = costs, tokens, clock, part
        self.warned = False  # whether a dominant setting was named
        self.long, self.rounds = long, rounds
        self.since = clock()  # when the last sample was finished, or the run began
        self.finished, self.later = Finished(), Finished()  # all samples, and those after the first
        self.passes: set[float] = set()  # passes of finished samples, see `prefill_of`
        self.unfinished: dict[str, set[float]] = {}  # passes of samples with some records

    def made(self, record: Mapping[str, Any]) -> bool:
        """Count a record. Returns whether its sample is now finished."""
        sample = record["sample"]
        if sample not in self.left_of:
            return False
        self.unfinished.setdefault(sample, set()).update(filter(None, [prefill_of(record)]))
        self.left_of[sample] -= 1
        if self.left_of[sample] > 0:
            return False
        now = self.clock()
        passes = self.unfinished.pop(sample) - self.passes
        self.passes |= passes
        elapsed, self.since = now - self.since, now
        prefill = min(self.rounds * sum(passes), elapsed)
        predicted = self.costs[sample]
        measured = Cost(prefill, elapsed - prefill, predicted.records)
        if self.finished.samples:
            self.later.add(predicted, measured)
        self.finished.add(predicted, measured)
        if self.left_of[sample] == 0:
            self._leave_behind(predicted)
        return True

    def _leave_behind(self, predicted: Cost) -> None:
        """One sample is ahead no more. Only here, since the thread of the progress line reads what is ahead."""
        self.ahead -= 1
        self.work_ahead -= predicted
        while self.order and self.left_of[self.order[0]] <= 0:
            self.order.popleft()
        self.current = self.costs[self.order[0]] if self.order else NOTHING

    @property
    def measuring(self) -> bool:
        """Whether no sample is finished yet, so that the seconds of the predicted work are unknown."""
        return not self.finished.samples

    @property
    def counted(self) -> Finished:
        """The finished samples without the first, whose time includes what a process does once: compiling kernels,
        reading files. The first sample counts while no other has finished, or while no other has a prefill.
        """
        alone = self.finished.predicted.prefill and not self.later.predicted.prefill
        return self.finished if alone or not self.later.samples else self.later

    def left(self) -> float:
        """Seconds until the last record, minus the current sample's seconds so far; in UNITs while `measuring`."""
        if not self.ahead:
            return 0.0
        factors, current = self._factors(), self.current
        seconds, others = (
            factors.prefill * cost.prefill + factors.rest * cost.rest for cost in (current, self.work_ahead - current)
        )
        spent = self.clock() - self.since
        return max(seconds - spent, 0.0) + max(others, 0.0)

    def span(self) -> Seconds:
        """The range of `left` in seconds, from how much the ratio of measured to predicted time varies over samples."""
        left, counted = self.left(), self.counted
        if counted.ratios < 2 or not self.ahead:
            low, high = AFTER_ONE if self.ahead else (1.0, 1.0)
            return Seconds(low * left, high * left)
        spread = 2 * counted.variation * (1 / counted.ratios + 1 / self.ahead) ** 0.5
        if spread < SURE:
            return Seconds(left, left)
        return Seconds(max(1 - spread, 0.0) * left, (1 + spread) * left)

    def _factors(self) -> Factors:
        predicted, measured = self.counted.predicted, self.counted.measured
        if predicted.prefill and measured.prefill and predicted.rest:
            return Factors(measured.prefill / predicted.prefill, measured.rest / predicted.rest)
        factor = measured.total / predicted.total if predicted.total else 1.0
        return Factors(factor, factor)
