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

    The reference is the folder's first engine setting. An earlier run may have made its records, in any number of
    shards, with a server that is not up any more; if it measured no distances, there are none from it. Without such
    records it is the first setting of this run that has any.
    """

    def __init__(self, run: EngineRun, samples: Sequence[Sample], store: Store):
        """samples: those of this process, one of which is asked again before an earlier run goes on."""
        self.answers: dict[str, dict[str, Any]] = {}  # the reference's, by sample
        self.earlier: dict[str, dict[str, Any]] = {}  # by setting, its first record of one of `samples`
        asked = {sample.id for sample in samples}
        records = recorded_by_engines(store.path.parent)
        self.first = next(map(setting_key, records), None)  # the reference's key
        self.compares = any(setting.key != (self.first or run.settings[0].key) for setting in run.settings)
        for record in records:
            self.add(record)
            if record["sample"] in asked:
                self.earlier.setdefault(setting_key(record), record)

    def add(self, record: dict[str, Any]) -> None:
        """Add a record of the folder; without a setting to compare, memory holds none."""
        key = setting_key(record)
        self.first = self.first or key
        if self.compares and key == self.first:
            self.answers[record["sample"]] = record

    def of(self, setting: EngineSetting, samples: Sequence[Sample]) -> Reference:
        """The reference of a setting for `samples`, of which it has no records."""
        earlier = self.earlier.get(setting.key)
        if setting.key == (self.first or setting.key):
            return Reference({}, True, earlier)
        return Reference({s.id: self.answers[s.id] for s in samples if s.id in self.answers}, False, earlier)


def recorded_by_engines(folder: Path) -> list[dict[str, Any]]:
    """The engines' records of all shards of a folder, in the order of the runs that made them."""
    place = {run: number for number, run in enumerate(read_manifests(folder)[0])}
    records = [record for path in record_files(folder) for record in read_records(path).records]
    by_engines = [record for record in records if record["kind"] == "engine"]
    return sorted(by_engines, key=lambda record: place.get(record["run"], len(place)))
