"""Predictions scored again with today's metrics."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from kvbench.benchmarks import Benchmark, Sample
from kvbench.metrics.answers import has_name
from kvbench.runner.manifest import benchmark_versions
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.known_classes import scorer
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.reach import within_reach
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong

EQUAL = 1e-9
NOTHING = Materials(None, None, ())


class _Recorded(NamedTuple):
    """The fields of a sample that its record has: `score` may read others, which must not be taken for empty ones."""

    id: str
    answers: tuple[str, ...]
    meta: dict[str, Any]


class _Scorer(NamedTuple):
    """What scores the predictions of a run again."""

    benchmark: Benchmark
    samples: Mapping[str, Sample]  # by name, where they can be made here
    others: str  # versions of it and its metrics that made the scores, where they are not those here


def scores_fit(folder: Folder, materials: Materials = NOTHING) -> Check:
    """Each record's scores follow from its prediction and sample, whatever its kind.

    A benchmark that cannot be made here scores without its data, and by what a record has of the sample. Another score
    is wrong, or unproven if the run states other versions of the benchmark or its metrics. A distance from FullKV
    compares logits, which are in no record: only the model computes it again.
    """
    findings = Findings()
    scorers: dict[str, _Scorer] = {}
    first = next(iter(folder.manifests.values()), {})  # the materials are of this one
    samples = {sample.id: sample for sample in materials.samples or ()}
    for run, manifest in folder.manifests.items():
        try:
            made = materials.benchmark if _of_one_benchmark(manifest, first) else None
            benchmark = made or scorer(manifest.get("benchmark") or {})
            scorers[run] = _Scorer(benchmark, samples if made else {}, _other_versions(benchmark, manifest))
        except (ValueError, TypeError, AttributeError) as error:  # a stranger's versions can have any type
            findings.missing.append(f"run {run}: {error}")
    predictions = [record for record in folder.records if isinstance(record.get("prediction"), str)]
    with within_reach({}):  # once for all records: what may be reached takes longer to find than a score
        for record in predictions:
            if (of_run := scorers.get(record["run"])) is not None:
                findings.collect(named(record), _scored, record, *of_run)
    if not folder.records:
        findings.missing.append("there are no predictions")
    elif len(predictions) < len(folder.records):
        findings.missing.append(f"{len(folder.records) - len(predictions)} record(s) have no prediction")
    if distances := sum(record.get("distance") is not None for record in folder.records):
        findings.missing.append(f"the distances of {distances} record(s) are not computed again")
    return findings.judged("scores", "every prediction scored again with today's metrics", Verdict.PROVEN)


def _of_one_benchmark(*manifests: Mapping[str, Any]) -> bool:
    """Whether two manifests say the same of their benchmark."""
    one, other = ((each.get("benchmark"), (each.get("config") or {}).get("benchmark")) for each in manifests)
    return one == other


def _other_versions(benchmark: Benchmark, manifest: Mapping[str, Any]) -> str:
    """The versions of a benchmark and its metrics that a run states, where they are not those here; "" where they are.

    A run without any has the first of each; one that states some has no others.
    """
    here = benchmark_versions(benchmark)
    stated: dict[str, Any] = (manifest.get("versions") or {}).get("benchmark") or dict.fromkeys(here, 1)
    differ = [name for name in here if stated.get(name, here[name]) != here[name]]
    return ", ".join(f"version {stated[name]} of {name}, which here is {here[name]}" for name in differ)


def _scored(
    record: Mapping[str, Any], benchmark: Benchmark, samples: Mapping[str, Sample], others: str
) -> Iterator[Note]:
    if (name := getattr(benchmark, "name", None)) not in (None, record["benchmark"]):
        yield wrong(f"its run is of benchmark {name!r}, not {record['benchmark']!r}")
    if (metric := record.get("metric")) is not None and not has_name(metric):
        yield missing(f"the metric {metric!r} is a function that kvbench does not have")
        return
    made = samples.get(record["sample"])
    sample = made or cast(Sample, _Recorded(record["sample"], tuple(record["answers"]), dict(record)))
    try:
        scores = benchmark.scores(sample, record["prediction"])
    except (AttributeError, KeyError, TypeError, ValueError, ImportError) as error:
        lacking = "here" if made else "without its data"
        yield missing(f"{record['benchmark']} cannot be scored {lacking} ({type(error).__name__}: {error})")
        return
    if scores.keys() != record["scores"].keys():
        yield _differs(f"scores {', '.join(record['scores'])}, but there are {', '.join(scores)}", others)
        return
    if not scores:
        yield missing("there is no score of its answer")
    for name, value in scores.items():
        if not abs(value - record["scores"][name]) <= EQUAL:
            yield _differs(f"{name} is {record['scores'][name]:g}, but its prediction scores {value:g}", others)


def _differs(what: str, others: str) -> Note:
    return missing(f"{what}: it was scored by {others}") if others else wrong(what)
