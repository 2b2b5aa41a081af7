"""Loads × engines → records: start or find the server, send each load in every round, read the reports, store."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.benchmarks.serve import Serve
from kvbench.engines.base import Address, Gone
from kvbench.engines.record import EngineRun, failure
from kvbench.engines.serving.capacity import watched
from kvbench.engines.serving.figures import Load
from kvbench.engines.serving.guidellm import GuideLLM, NotMeasured, guidellm
from kvbench.engines.serving.record import Repeat, record
from kvbench.engines.serving.reports import read_report
from kvbench.engines.serving.requests import rows
from kvbench.engines.serving.warm_up import warm_up
from kvbench.engines.settings import EngineSetting
from kvbench.errors import Incomplete, UserError
from kvbench.evaluation.record import Failure
from kvbench.records.store import Store
from kvbench.utils.hashing import digest
from kvbench.utils.signals import unbroken

REPORTS = "guidellm"  # folder of the reports in a run's folder


def evaluate(run: EngineRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any] | Failure]:
    """Make and store every missing record, setting after setting; yields each record once it is on the disk.

    A round is a repeat of all loads. Raises Incomplete if a server cannot be started; earlier records are stored.
    """
    python = guidellm()
    for setting in run.settings:
        missing = [sample for sample in samples if run.key(sample, setting) not in store.done]
        if not missing:
            continue
        run.stage.text = f"{setting.label} · starting"
        try:
            with setting.engine.served() as address:
                yield from Rounds(run, setting, address, python, store).records(missing)
        except Gone as error:
            raise Incomplete(f"{setting.label!r}: {error}; all earlier records are safe") from error


class Rounds:
    """The loads of one setting."""

    def __init__(self, run: EngineRun, setting: EngineSetting, address: Address, python: Path, store: Store):
        assert isinstance(run.benchmark, Serve), "servers are loaded by benchmark=serve"
        self.run, self.setting, self.address, self.store = run, setting, address, store
        self.benchmark, self.folder = run.benchmark, store.path.parent / REPORTS
        self.tool = GuideLLM(python, run.benchmark, address, run.loaded)
        self.prompts = run.benchmark.of.samples(run.loaded.tokenizer)

    def records(self, samples: Sequence[Sample]) -> Iterator[dict[str, Any] | Failure]:
        self.folder.mkdir(exist_ok=True)
        repeats: dict[str, list[Repeat]] = {sample.id: [] for sample in samples}
        failed: set[str] = set()
        for number in range(self.benchmark.repeats):
            for place, sample in enumerate(samples):
                if sample.id in failed:
                    continue
                self.run.stage.text = f"{self.setting.label} · {sample.id}, {number + 1} of {self.benchmark.repeats}"
                try:
                    repeats[sample.id].append(self.repeat(sample, number, number * len(samples) + place))
                except NotMeasured as error:
                    failed.add(sample.id)
                    yield failure(self.run, sample, self.setting, str(error))
                    continue
                if number + 1 == self.benchmark.repeats:
                    measured = record(self.run, self.benchmark, sample, self.setting, repeats[sample.id])
                    with unbroken():
                        self.store.append(measured)
                    yield measured

    def repeat(self, sample: Sample, number: int, before: int) -> Repeat:
        """Measure one load; `before` is the number of loads that the server had before. Raises NotMeasured."""
        load = Load(sample.meta["profile"], sample.meta["rate"])
        first = before * (self.benchmark.warmup + self.benchmark.requests)
        report = (
            self.folder / f"{_plain(self.setting.label)}-{digest(self.setting.key)[:8]}-{sample.id}-{number + 1}.json"
        )
        report.unlink(missing_ok=True)  # left by a run that was stopped
        mark = self.run.id.rpartition("-")[2][:6]
        try:
            requests = rows(self.benchmark, self.run.loaded, self.prompts, self.address.chats, first, mark)
        except UserError as error:  # a prompt that does not fit
            raise NotMeasured(str(error)) from error
        average = os.getloadavg()[0]
        warming, counted = requests[: self.benchmark.warmup], requests[self.benchmark.warmup :]
        warm_up(self.address, warming, self.benchmark.seconds)
        with watched(self.address) as most:
            self.tool.measure(load, counted, report, seed=number)
        try:
            measured = read_report(report)[0]
        except UserError as error:
            raise NotMeasured(str(error)) from error
        if not measured.answered:
            why = measured.error or "GuideLLM gives no reason"
            raise NotMeasured(f"none of {measured.failed} requests was answered: {why}")
        return Repeat(measured, report, dict(most), average, fmean(row["tokens"] for row in counted))


def _plain(label: str) -> str:
    return re.sub(r"[^\w.]+", "-", label)
