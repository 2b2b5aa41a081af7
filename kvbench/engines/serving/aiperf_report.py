"""AIPerf's `profile_export_aiperf.json`, by its documentation: metrics, each with `avg`, `p50` and others.

It has no time per output token that includes the first token.
"""

from collections.abc import Mapping
from typing import Any

from kvbench.engines.serving.figures import STATISTICS, Load, Measured, number_at

# kvbench's name -> AIPerf's name, and the factor from AIPerf's unit to kvbench's.
DISTRIBUTIONS = {
    "first_token_ms": ("time_to_first_token", 1.0),
    "inter_token_ms": ("inter_token_latency", 1.0),
    "request_s": ("request_latency", 1e-3),
}
MEANS = {
    "tokens_per_s": "output_token_throughput",
    # tokens of an answer over its request's seconds; output_token_throughput_per_user leaves out the first token's wait
    "request_tokens_per_s": "e2e_output_token_throughput",
    "requests_per_s": "request_throughput",
    "prompt_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
}


def is_aiperf(node: Mapping[str, Any]) -> bool:
    return "request_count" in node and "request_throughput" in node


def measured(node: Mapping[str, Any]) -> list[Measured]:
    """The load of a report. Raises KeyError, TypeError or ValueError for another file."""
    figures: dict[str, float | None] = {}
    for figure, (metric, factor) in DISTRIBUTIONS.items():
        for name in STATISTICS:
            value = number_at(node, metric, "avg" if name == "mean" else name)
            figures[f"{figure}_{name}"] = None if value is None else value * factor
    figures |= {figure: number_at(node, metric, "avg") for figure, metric in MEANS.items()}
    errors = node.get("error_summary") or []
    failed = sum(int(error["count"]) for error in errors)
    words = str(errors[0]["error_details"].get("message") or "") if errors else ""
    version = node.get("aiperf_version") or ""
    known = {name: value for name, value in figures.items() if value is not None}
    answered = int(node["request_count"]["avg"])
    return [Measured(f"aiperf {version}".strip(), _load(node), known, answered, failed, 0, words)]


def _load(node: Mapping[str, Any]) -> Load | None:
    """The load in the report's configuration, whose form may change between versions of AIPerf."""
    options = (node.get("input_config") or {}).get("loadgen") or {}
    rate, concurrency = options.get("request_rate"), options.get("concurrency")
    if isinstance(rate, int | float):
        return Load(str(options.get("request_rate_mode") or "poisson"), float(rate))
    return Load("concurrent", float(concurrency)) if isinstance(concurrency, int | float) else None
