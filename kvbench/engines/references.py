"""The records with which the answers of engines are compared: those of the folder's first engine setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.benchmarks import Sample
from kvbench.engines.record import EngineRun
from kvbench.engines.settings import EngineSetting
from kvbench.records.identity import setting_key
from kvbench.records.manifest import read_manifests
from kvbench.records.store import Store, read_records, record_files


class Reference(NamedTuple):
    """The records that a setting's answers are compared with."""

    records: Mapping[str, dict[str, Any]]  # by sample, for the samples that the setting lacks
    itself: bool  # whether other settings are compared with this setting
    earlier: dict[str, Any] | None  # a record of this setting from an earlier run


class References:
    """The reference of every setting of a run. The folder's records are read once, and those that the run makes are
    added.

    The reference is the folder's first engine setting; if distances are measured, the first with likeliest tokens. An
    earlier run may have made its records, in any number of shards, with a server that is not up any more. Without such
    records it is the first setting of this run.
    """

    def __init__(self, run: EngineRun, samples: Sequence[Sample], store: Store):
        """samples: those of this process, one of which is asked again before an earlier run goes on."""
        self.run, self.store = run, store
        self.first_of_run = run.settings[0].key
        self.answers: dict[str, dict[str, dict[str, Any]]] = {}  # of settings that can be the reference, by sample
        self.earlier: dict[str, dict[str, Any]] = {}  # by setting, its first record of one of `samples`
        asked = {sample.id for sample in samples}
        records = recorded_by_engines(store.path.parent)
        self.first = next((setting_key(record) for record in records if self.can_be_first(record)), None)
        self.compares = any(setting.key != (self.first or self.first_of_run) for setting in run.settings)
        for record in records:
            self.add(record)
            if record["sample"] in asked:
                self.earlier.setdefault(setting_key(record), record)

    def can_be_first(self, record: Mapping[str, Any]) -> bool:
        return bool(record["top"]) or not self.run.distance

    def add(self, record: dict[str, Any]) -> None:
        """Add a record of the folder; without a setting to compare, memory holds none."""
        key = setting_key(record)
        if self.first is None and self.can_be_first(record):
            self.first = key
        if self.compares and key in (self.first, self.first_of_run):
            self.answers.setdefault(key, {})[record["sample"]] = record

    def of(self, setting: EngineSetting, samples: Sequence[Sample]) -> Reference:
        """The reference of a setting for `samples`, of which it has no records."""
        first, earlier = self.first or self.first_of_run, self.earlier.get(setting.key)
        if setting.key == first:
            return Reference({}, True, earlier)
        answers = self.answers.get(first, {})
        return Reference({s.id: answers[s.id] for s in samples if s.id in answers}, False, earlier)


def recorded_by_engines(folder: Path) -> list[dict[str, Any]]:
    """The engines' records of all shards of a folder, in the order of the runs that made them."""
    place = {run: number for number, run in enumerate(read_manifests(folder)[0])}
    records = [record for path in record_files(folder) for record in read_records(path).records]
    by_engines = [record for record in records if record["kind"] == "engine"]
    return sorted(by_engines, key=lambda record: place.get(record["run"], len(place)))
