"""GuideLLM's JSON report (0.8): https://github.com/vllm-project/guidellm."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from kvbench.engines.secrets import Secret
from kvbench.engines.serving.figures import Load, Measured, number_at

# Our name -> GuideLLM's name, for completed answers.
DISTRIBUTIONS = {
    "first_token_ms": "time_to_first_token_ms",
    "per_token_ms": "time_per_output_token_ms",
    "inter_token_ms": "inter_token_latency_ms",
    "request_s": "request_latency",
}
STATISTICS = {"mean": ("mean",), "p50": ("percentiles", "p50"), "p95": ("percentiles", "p95")}
STATISTICS |= {"p99": ("percentiles", "p99")}
MEANS = {
    "tokens_per_s": "output_tokens_per_second",
    "requests_per_s": "requests_per_second",
    "good_requests_per_s": "request_goodput",
    "concurrency": "request_concurrency",
    "prompt_tokens": "prompt_token_count",
    "output_tokens": "output_token_count",
}


def is_guidellm(node: Mapping[str, Any]) -> bool:
    return "guidellm_version" in (node.get("metadata") or {})


def measured(node: Mapping[str, Any]) -> list[Measured]:
    """The loads of a report. Raises KeyError, TypeError or ValueError for another file."""
    tool = f"guidellm {node['metadata']['guidellm_version']}"
    return [_measured(benchmark, tool) for benchmark in node["benchmarks"]]


def _measured(node: Mapping[str, Any], tool: str) -> Measured:
    metrics, totals = node["metrics"], node["metrics"]["request_totals"]
    figures = {
        f"{figure}_{name}": number_at(metrics, metric, "successful", *path)
        for figure, metric in DISTRIBUTIONS.items()
        for name, path in STATISTICS.items()
    }
    figures |= {figure: number_at(metrics, metric, "successful", "mean") for figure, metric in MEANS.items()}
    if number_at(metrics, MEANS["prompt_tokens"], "successful", "min") == 0:
        figures["prompt_tokens"] = None  # the server gave no count with some answers, which GuideLLM takes for 0
    figures["good_share"] = number_at(metrics, "slo_attainment")
    requests = node["requests"]
    each = [
        request["output_tokens_per_second"]
        for request in requests["successful"]
        if request["output_tokens_per_second"] and _is_counted(request, node)
    ]
    figures["request_tokens_per_s"] = fmean(each) if each else None
    errors = [request["info"]["error"] for request in requests["errored"] if request["info"]["error"]]
    return Measured(
        tool,
        _load(node["config"]["strategy"]),
        {name: value for name, value in figures.items() if value is not None} if totals["successful"] else {},
        int(totals["successful"]),
        int(totals["errored"]),
        int(totals["incomplete"]),
        str(errors[0]).partition("\\n")[0] if errors else "",  # the first line of an exception in Python's form
    )


def _is_counted(request: Mapping[str, Any], load: Mapping[str, Any]) -> bool:
    """Whether a load's figures count a request: its requests have those of GuideLLM's warm-up and cooldown, too."""
    return bool(request["request_end_time"] >= load["start_time"] and request["request_start_time"] <= load["end_time"])


def cross_out(report: Path, secret: Secret) -> None:
    """Cross the server's key out of what it said of failed requests, which may repeat it."""

    def cleaned(node: dict[str, Any]) -> dict[str, Any]:
        return {name: secret.out_of(value) if _told(name, value) else value for name, value in node.items()}

    with suppress(ValueError):  # no JSON: `read_report` says so
        report.write_text(json.dumps(json.loads(report.read_text("utf-8"), object_hook=cleaned)), "utf-8")


def _told(name: str, value: object) -> bool:
    """Whether a report's field is in the words of a failed request's server."""
    return name in ("error", "traceback") and isinstance(value, str)


def _load(strategy: Mapping[str, Any]) -> Load:
    rate = strategy.get("streams") if strategy["type_"] == "concurrent" else strategy.get("rate")
    return Load(str(strategy["type_"]), None if rate is None else float(rate))
