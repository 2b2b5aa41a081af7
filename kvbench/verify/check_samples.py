"""Whether the samples are the benchmark's, all of those requested, and the records repeat them as they are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.records.pack import sample_hashes, sha256_of
from kvbench.records.recorded_configuration import recorded
from kvbench.records.samples import row_of
from kvbench.runner.shards import first_of_each_task
from kvbench.verify.folder import Folder, named
from kvbench.verify.materials import Materials
from kvbench.verify.verdict import Check, Verdict, judged


def samples_fit(folder: Folder, here: Materials) -> Check:
    """Hashes of data and rows, answers and properties, and which samples were run."""
    wrong: list[str] = []
    missing: list[str] = []
    about = "samples against the benchmark" if here.samples else "samples against their file"
    if not folder.samples:
        missing.append("the samples are not listed")
    if here.samples is None:
        (wrong if here.other_data else missing).extend(here.missing)
        wrong += _against_rows(folder)
        return judged("samples", about, wrong, missing)
    made = {sample.id: sample for sample in here.samples}
    for name, row in folder.samples.items():
        if name not in made:
            wrong.append(f"{name!r} is no sample of the benchmark")
        elif not _same_row(folder, made[name], row):
            wrong.append(f"sample {name!r} is another one in the benchmark")
        elif not _whole_row(folder, made[name], row):
            missing.append(f"the row of sample {name!r} has other fields or passages than this version writes")
    for record in folder.records:
        if (sample := made.get(record["sample"])) is None:
            wrong.append(f"{named(record)}: the benchmark has no such sample")
        elif record["kind"] in ("method", "engine"):
            wrong += [f"{named(record)}: {line}" for line in _fields(record, list(sample.answers), sample.meta)]
            wrong += [f"{named(record)}: {line}" for line in _drawn_with(record, sample)]
            if len(record["tokens"] or []) > sample.max_new_tokens:
                wrong.append(f"{named(record)}: its answer is longer than {sample.max_new_tokens} tokens")
    wrong += _chosen(folder, here.samples)
    return judged("samples", about, wrong, missing, Verdict.PROVEN)


def _same_row(folder: Folder, sample: Sample, row: Mapping[str, Any]) -> bool:
    made = row_of(sample)
    if folder.packed:
        return bool(sample_hashes(made)["fields_sha256"] == row["fields_sha256"])
    return all(made[name] == value for name, value in row.items() if name in made and name != "evidence")


def _whole_row(folder: Folder, sample: Sample, row: Mapping[str, Any]) -> bool:
    made = row_of(sample)
    if folder.packed:
        return bool(sample_hashes(made)["row_sha256"] == row["row_sha256"])
    return made == row


def _drawn_with(record: Mapping[str, Any], sample: Sample) -> Iterator[str]:
    """What decides how answers were drawn, and which samples intervals draw together."""
    sampling = sample.sampling and asdict(sample.sampling)
    for name, value in (("context_id", sample.context_id), ("unit", sample.unit), ("sampling", sampling)):
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
        if row is None:
            continue
        if folder.packed:
            continue  # their properties' names are not in a pack; only the benchmark can tell
        wrong += [
            f"{named(record)}: {line}"
            for line in _fields(record, row.get("answers", record["answers"]), row.get("meta", {}))
        ]
    by_sample: dict[str, set[str]] = {}
    for record in folder.methods:
        by_sample.setdefault(record["sample"], set()).add(sha256_of(record["answers"]))
    return wrong + [
        f"sample {name!r} has several expected answers" for name, some in by_sample.items() if len(some) > 1
    ]


def _chosen(folder: Folder, samples: Sequence[Sample]) -> list[str]:
    """Samples of runs that are not the first `limit` of each task."""
    wanted: set[str] = set()
    for manifest in folder.manifests.values():
        limit = recorded(manifest).limit
        wanted |= {sample.id for sample in first_of_each_task(samples, limit)}
    covered = {record["sample"] for record in folder.records}
    finished = any(manifest.get("status") == "finished" for manifest in folder.manifests.values())
    shards = {(recorded(one).shards, recorded(one).shard) for one in folder.manifests.values()}
    whole = all(len([1 for all_, _ in shards if all_ == count]) == count for count, _ in shards)
    wrong = [f"sample {name!r} is not among the first ones that the run requested" for name in sorted(covered - wanted)]
    if finished and whole:
        wrong += [f"sample {name!r} of the benchmark was left out" for name in sorted(wanted - covered)]
    return wrong
