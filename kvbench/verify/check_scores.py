"""Predictions scored again with today's metrics."""

from kvbench.benchmarks import Benchmark, Sample
from kvbench.metrics.answers import METRICS
from kvbench.verify.folder import Folder, named
from kvbench.verify.known_classes import scorer
from kvbench.verify.verdict import Check, Verdict, judged

EQUAL = 1e-9


def scores_fit(folder: Folder) -> Check:
    """Each record's scores are those of its prediction and answers."""
    wrong: list[str] = []
    missing: list[str] = []
    benchmarks: dict[str, Benchmark | None] = {}
    for record, manifest in folder.with_manifests():
        if record["kind"] != "method":
            continue
        if record["run"] not in benchmarks:
            try:
                benchmarks[record["run"]] = scorer(manifest.get("benchmark") or {})
            except ValueError as error:
                benchmarks[record["run"]] = None
                missing.append(f"run {record['run']}: {error}")
        if (benchmark := benchmarks[record["run"]]) is None:
            continue
        if (name := getattr(benchmark, "name", None)) not in (None, record["benchmark"]):
            wrong.append(f"{named(record)}: its run is of benchmark {name!r}, not {record['benchmark']!r}")
        if (metric := record.get("metric")) and metric not in METRICS:
            missing.append(f"the metric {metric!r} is a function that kvbench does not have")
            continue
        sample = Sample(record["sample"], "", tuple(record["answers"]), 1, meta=record)
        try:
            scores = benchmark.score(sample, record["prediction"])
        except (AttributeError, KeyError, TypeError, ValueError, ImportError) as error:
            missing.append(f"{record['benchmark']} cannot be scored without its data ({type(error).__name__}: {error})")
            continue
        if scores.keys() != record["scores"].keys():
            wrong.append(f"{named(record)}: scores {', '.join(record['scores'])}, but there are {', '.join(scores)}")
        else:
            wrong += [
                f"{named(record)}: {name} is {record['scores'][name]:g}, but its prediction scores {value:g}"
                for name, value in scores.items()
                if not abs(value - record["scores"][name]) <= EQUAL
            ]
    if not folder.methods:
        missing.append("there are no predictions")
    return judged("scores", "every prediction scored again with today's metrics", wrong, missing, Verdict.PROVEN)
