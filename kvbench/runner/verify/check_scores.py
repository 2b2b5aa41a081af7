"""Predictions scored again with today's metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.benchmarks import Benchmark, Sample
from kvbench.metrics.answers import has_name
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.known_classes import scorer
from kvbench.runner.verify.reach import within_reach
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong

EQUAL = 1e-9


def scores_fit(folder: Folder) -> Check:
    """Each record's scores follow from its prediction and answers, whatever its kind.

    A distance from FullKV compares logits, which are in no record: only the model computes it again.
    """
    findings = Findings()
    benchmarks: dict[str, Benchmark | None] = {}
    for run, manifest in folder.manifests.items():
        try:
            benchmarks[run] = scorer(manifest.get("benchmark") or {})
        except (ValueError, TypeError) as error:
            findings.missing.append(f"run {run}: {error}")
    predictions = [record for record in folder.records if isinstance(record.get("prediction"), str)]
    with within_reach({}):  # once for all records: what may be reached takes longer to find than a score
        for record in predictions:
            if (benchmark := benchmarks.get(record["run"])) is not None:
                findings.collect(named(record), _scored, record, benchmark)
    if len(predictions) < len(folder.records):
        findings.missing.append(f"{len(folder.records) - len(predictions)} record(s) have no prediction")
    if distances := sum(record.get("distance") is not None for record in folder.records):
        findings.missing.append(f"the distances of {distances} record(s) are not computed again")
    return findings.judged("scores", "every prediction scored again with today's metrics", Verdict.PROVEN)


def _scored(record: Mapping[str, Any], benchmark: Benchmark) -> Iterator[Note]:
    if (name := getattr(benchmark, "name", None)) not in (None, record["benchmark"]):
        yield wrong(f"its run is of benchmark {name!r}, not {record['benchmark']!r}")
    if (metric := record.get("metric")) is not None and not has_name(metric):
        yield missing(f"the metric {metric!r} is a function that kvbench does not have")
        return
    sample = Sample(record["sample"], "", tuple(record["answers"]), 1, meta=dict(record))
    try:
        scores = benchmark.score(sample, record["prediction"])
    except (AttributeError, KeyError, TypeError, ValueError, ImportError) as error:
        what = f"{type(error).__name__}: {error}"
        yield missing(f"{record['benchmark']} cannot be scored without its data ({what})")
        return
    if scores.keys() != record["scores"].keys():
        yield wrong(f"scores {', '.join(record['scores'])}, but there are {', '.join(scores)}")
        return
    if not scores:
        yield missing("there is no score of its answer")
    for name, value in scores.items():
        if not abs(value - record["scores"][name]) <= EQUAL:
            yield wrong(f"{name} is {record['scores'][name]:g}, but its prediction scores {value:g}")
