"""Whether the samples are the benchmark's, none that was requested is missing, and records repeat them exactly."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kvbench.benchmarks import Sample
from kvbench.records.pack import sample_hashes, sha256_of
from kvbench.records.progress import Request, request_of, shards_by_request, whole
from kvbench.records.samples import row_of
from kvbench.runner.shards import first_of_each_task
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.verdict import Check, Findings, Verdict, missing


def samples_fit(folder: Folder, materials: Materials) -> Check:
    """Hashes of data and rows, answers and properties, and which samples were run."""
    findings = Findings()
    wrong, omitted = findings.wrong, findings.missing
    about = "samples against the benchmark" if materials.samples else "samples against their file"
    if not folder.samples:
        omitted.append("the samples are not listed")
    if materials.samples is None:
        (wrong if materials.other_data else omitted).extend(materials.missing)
        wrong += _against_rows(folder)
        return findings.judged("samples", about)
    samples = {sample.id: sample for sample in materials.samples}
    for name, row in folder.samples.items():
        fit = _row_fits(folder.packed, samples[name], row) if name in samples else None
        if fit is None:
            wrong.append(f"{name!r} is no sample of the benchmark")
        elif not fit.matches:
            wrong.append(f"sample {name!r} is another one in the benchmark")
        elif not fit.complete:
            omitted.append(f"the row of sample {name!r} has other fields or passages than this version writes")
    for record in folder.records:
        if (sample := samples.get(record["sample"])) is None:
            wrong.append(f"{named(record)}: the benchmark has no such sample")
        elif record["kind"] in ("method", "engine"):
            wrong += [f"{named(record)}: {line}" for line in _fields(record, list(sample.answers), sample.meta)]
            wrong += [f"{named(record)}: {line}" for line in _drawn_with(record, sample)]
            if sample.unit and record.get("unit") is None:  # as in records from before the benchmark named units
                no_unit = missing("no unit, so that intervals draw each sample alone")
                findings.notes.setdefault(no_unit, []).append(named(record))
            if len(record["tokens"] or []) > sample.max_new_tokens:
                wrong.append(f"{named(record)}: its answer is longer than {sample.max_new_tokens} tokens")
    wrong += _chosen(folder, materials.samples)
    return findings.judged("samples", about, Verdict.PROVEN)


class Fit(NamedTuple):
    matches: bool  # whether a row is of the benchmark's sample
    complete: bool  # whether it has all fields and passages that this version writes


def _row_fits(packed: bool, sample: Sample, row: Mapping[str, Any]) -> Fit:
    expected = row_of(sample)
    if packed:
        hashes = sample_hashes(expected)
        return Fit(hashes["fields_sha256"] == row["fields_sha256"], hashes["row_sha256"] == row["row_sha256"])
    shared = expected.keys() & row.keys() - {"evidence"}
    return Fit(all(expected[name] == row[name] for name in shared), expected == row)


def _drawn_with(record: Mapping[str, Any], sample: Sample) -> Iterator[str]:
    """The sample's fields on how answers were drawn and which samples intervals draw together."""
    sampling = sample.sampling and asdict(sample.sampling)
    unit = sample.unit if record.get("unit") is not None else None
    for name, value in (("context_id", sample.context_id), ("unit", unit), ("sampling", sampling)):
        if (record.get(name) or None) != (value or None):
            yield f"its {name} is not the sample's"


def _fields(record: Mapping[str, Any], answers: Sequence[str], meta: Mapping[str, Any]) -> list[str]:
    notes = ["its expected answers are not the sample's"] if record["answers"] != answers else []
    other = [name for name, value in meta.items() if record.get(name) != value]
    return [*notes, *(f"its {name} is not the sample's" for name in other)]


def _against_rows(folder: Folder) -> list[str]:
    wrong = []
    for record in folder.methods:
        row = folder.samples.get(record["sample"])
        if row is None or folder.packed:  # a pack has no properties of samples: only the benchmark has them
            continue
        wrong += [
            f"{named(record)}: {line}"
            for line in _fields(record, row.get("answers", record["answers"]), row.get("meta", {}))
        ]
    answers: dict[str, set[str]] = {}
    for record in folder.methods:
        answers.setdefault(record["sample"], set()).add(sha256_of(record["answers"]))
    several = [name for name, hashes in answers.items() if len(hashes) > 1]
    return wrong + [f"sample {name!r} has several expected answers" for name in several]


def _chosen(folder: Folder, samples: Sequence[Sample]) -> list[str]:
    """Samples that are not among the first `limit` of each task, or are missing from them."""
    manifests = folder.manifests.values()
    finished = [manifest for manifest in manifests if manifest.get("status") == "finished"]
    requested, due = _first(samples, map(request_of, manifests)), _first(samples, whole(shards_by_request(finished)))
    covered = {record["sample"] for record in folder.records}
    wrong = [f"sample {name!r} is not among the first that the run requested" for name in sorted(covered - requested)]
    return wrong + [f"sample {name!r} of the benchmark was left out" for name in sorted(due - covered)]


def _first(samples: Sequence[Sample], requests: Iterable[Request]) -> set[str]:
    """The names of the samples that any of the requests wants."""
    limits = {request.limit for request in requests}
    return {sample.id for limit in limits for sample in first_of_each_task(samples, limit)}
