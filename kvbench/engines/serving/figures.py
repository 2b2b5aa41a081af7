"""What was measured of one load, in the same words whichever tool measured it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Distributions over the answers of a load, with their unit: each has STATISTICS.
LATENCIES = {
    "first_token_ms": "from a request to the first token of its answer",
    "per_token_ms": "from a request to its last token, divided by the answer's tokens",
    "inter_token_ms": "between two tokens of an answer, the mean of each answer",
    "request_s": "from a request to the end of its answer",
}
STATISTICS = ("mean", "p50", "p95", "p99")
RATES = {
    "tokens_per_s": "tokens of answers that the server gives in a second",
    "request_tokens_per_s": "tokens a second of one answer, mean over answers",
    "requests_per_s": "answers that end in a second",
    "good_requests_per_s": "answers a second within the limits of latency",
}
MEANS = {
    "good_share": "share of requests, failed ones included, that were answered within the limits of latency",
    "concurrency": "requests that were open at once, mean over time",
    "prompt_tokens": "tokens of a prompt, as the server counts them",
    "output_tokens": "tokens of an answer, as the server counts them",
}
FIGURES = (*(f"{name}_{one}" for name in LATENCIES for one in STATISTICS), *RATES, *MEANS)


class Load(NamedTuple):
    """How requests follow each other."""

    profile: str
    rate: float | None  # requests at once, or a second; None where the profile has none


@dataclass(frozen=True)
class Measured:
    """One load, measured once."""

    tool: str  # and its version
    load: Load | None  # None where the report does not say
    figures: Mapping[str, float]  # by names of FIGURES; what was not measured is missing
    answered: int
    failed: int
    unfinished: int  # when the load ended
    error: str = ""  # the first failure, in the server's or the tool's words
