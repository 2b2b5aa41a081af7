"""Whether records and manifests have the fields that kvbench writes for the run's kind, no more and no fewer."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench import benchmarks
from kvbench.benchmarks import Serve, Speed
from kvbench.records.recorded_configuration import recorded
from kvbench.records.schema import KINDS, Manifest
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.verdict import Check, Findings, Note, missing, wrong

# Names in configurations of the benchmarks whose records have their own kind.
OF_KIND = {
    f"{place}.{benchmark.__qualname__}": kind
    for benchmark, kind in ((Speed, "speed"), (Serve, "serve"))
    for place in (benchmark.__module__, benchmarks.__name__)
}


def fields_fit(folder: Folder, materials: Materials) -> Check:
    """A missing field would turn a check off, and a field that kvbench never writes is an unchecked claim."""
    findings = Findings()
    for run, manifest in folder.manifests.items():
        findings.collect(f"run {run}", _lacks, manifest, Manifest.always())
    samples = {sample.id: {*sample.meta} for sample in materials.samples or ()}
    for record, manifest in folder.with_manifests():
        findings.collect(named(record), _of_record, record, manifest, samples.get(record["sample"]))
    return findings.judged("fields", "fields of records and manifests against those that kvbench writes")


def _of_record(record: Mapping[str, Any], manifest: Mapping[str, Any], properties: set[str] | None) -> Iterator[Note]:
    kind = kind_of_run(manifest)
    if record["kind"] != kind:
        yield wrong(f"it is of kind {record['kind']}, but its run makes records of kind {kind}")
        return
    schema = KINDS[kind]
    yield from _lacks(record, schema.due(record) - {"checksum"})
    if properties is None:
        return  # the benchmark decides which fields a sample adds; `samples` reports whether it is here
    if invented := sorted(record.keys() - schema.model_fields.keys() - properties):
        yield wrong(f"its field {invented[0]!r} is neither kvbench's nor a property of its sample")
    if lacking := sorted(properties - record.keys()):
        yield wrong(f"it lacks its sample's {lacking[0]!r}")


def _lacks(node: Mapping[str, Any], written: frozenset[str]) -> Iterator[Note]:
    for name in sorted(written - node.keys()):
        yield missing(f"it has no {name!r}, which this version of kvbench always writes")


def kind_of_run(manifest: Mapping[str, Any]) -> str:
    """The kind of the records that a run makes, by its configuration."""
    config = recorded(manifest)
    kind = OF_KIND.get(str(config.benchmark.get("_target_")))
    if config.engine:
        return "serve" if kind == "serve" else "engine"
    if config.probe:
        return "probe"
    return kind or "method"
