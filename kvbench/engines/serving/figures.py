"""The measurements of one load, with the same names for every tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

# Distributions over the answers of a load; each has STATISTICS. The name ends in the unit.
LATENCIES = {
    "first_token_ms": "from a request to the first token of its answer",
    "per_token_ms": "from a request to its last token, divided by the answer's tokens",
    "inter_token_ms": "between two tokens of an answer, the mean of each answer",
    "request_s": "from a request to the end of its answer",
}
STATISTICS = ("mean", "p50", "p95", "p99")
RATES = {
    "tokens_per_s": "tokens of answers that the server gives in a second",
    "request_tokens_per_s": "tokens of an answer divided by request_s, mean over answers",
    "requests_per_s": "answers that end in a second",
    "good_requests_per_s": "answers a second within the limits of latency",
}
MEANS = {
    "good_share": "share of requests, failed ones included, that were answered within the limits of latency",
    "concurrency": "requests that were open at once, mean over time",
    "prompt_tokens": "tokens of a prompt, as the server counts them",
    "output_tokens": "tokens of an answer, as the server counts them",
}
FIGURES = (*(f"{name}_{statistic}" for name in LATENCIES for statistic in STATISTICS), *RATES, *MEANS)


class Load(NamedTuple):
    """How requests follow each other."""

    profile: str
    rate: float | None  # requests at the same time, or per second; None if the profile has none


@dataclass(frozen=True)
class Measured:
    """One load, measured once."""

    tool: str  # name and version
    load: Load | None  # None if the report does not state it
    figures: Mapping[str, float]  # by names of FIGURES; figures that were not measured are missing
    answered: int
    failed: int
    unfinished: int  # requests that were open when the load ended
    error: str = ""  # the first failure, in the server's or the tool's words


def number_at(report: Any, *path: str) -> float | None:
    """The number at these keys of a tool's report; None where there is none."""
    for key in path:
        report = report.get(key) if isinstance(report, dict) else None
    return float(report) if isinstance(report, int | float) and isfinite(report) else None
