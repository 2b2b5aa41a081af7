"""The loads of a server: prompts of another benchmark, at several rates. `kvbench.engines.serving` sends them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from kvbench.benchmarks.base import Benchmark, Sample, data_hash
from kvbench.benchmarks.speed import Speed
from kvbench.benchmarks.text import Text
from kvbench.errors import UserError
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.numbers import is_number
from kvbench.utils.tokenizer import Tokenizer

WITHOUT_RATES = ("synchronous", "throughput")


def _as_list(value: object) -> object:
    return [value] if is_number(value) else value


@checked(prefix="benchmark.")
class Serve(Benchmark):
    """One load after another, each `repeats` times: `requests` answers of `new_tokens` tokens at each of `rates`.

    of              whose prompts are sent, in turns, and whose answers' lengths are asked for without `new_tokens`.
    profile         concurrent: rates are requests at once; constant, poisson: requests a second, evenly or at random;
                    synchronous: one by one; throughput: all at once. These two have no rates.
    warmup          requests before each load, one by one, which are not counted.
    fresh           begin each prompt with a number of its own, so that no prefix of an earlier one can be reused.
    first_token_ms  limit of a good answer's first token, and
    token_ms        of its mean time between tokens; None: no limit.
    seconds         after which a load is ended.
    """

    of: Benchmark
    profile: Literal["concurrent", "constant", "poisson", "synchronous", "throughput"] = "concurrent"
    rates: Annotated[list[PositiveNumber | Positive] | None, Field(min_length=1), BeforeValidator(_as_list)] = None
    requests: Positive = 32
    warmup: NonNegative = 4
    repeats: Positive = 3
    new_tokens: Positive | None = None
    fresh: bool = True
    first_token_ms: PositiveNumber | Positive | None = None
    token_ms: PositiveNumber | Positive | None = None
    seconds: PositiveNumber | Positive = 600.0
    name: str = "serve"
    # 1: GuideLLM's own warm-up, which counted some of its requests, or left out others
    # 2: GuideLLM's own random arrivals, ten in a row after the same pause, and at another rate
    version = 3

    metrics = ()

    def __post_init__(self) -> None:
        if isinstance(self.of, Serve | Speed | Text):
            raise UserError(f"benchmark.of is {self.of.name}, which has no prompts to answer: another benchmark's name")
        if (self.rates is None) != (self.profile in WITHOUT_RATES):
            needs = "has no rates: benchmark.rates=null" if self.rates else "needs benchmark.rates=[…]"
            raise UserError(f"benchmark.profile={self.profile} {needs}")
        rates = self.rates or []
        if self.profile == "concurrent" and (odd := [rate for rate in rates if rate != int(rate)]):
            raise UserError(f"benchmark.rates has {odd[0]}: with profile=concurrent they are whole numbers of requests")
        if len(set(rates)) < len(rates):
            raise UserError(f"benchmark.rates={rates} has a rate twice")

    @property
    def longest(self) -> int | None:
        return self.of.longest

    @property
    def limits(self) -> dict[str, float]:
        """The limits that a good answer's latencies keep, in milliseconds, by the latency's name."""
        limits = {"first_token_ms": self.first_token_ms, "token_ms": self.token_ms}
        return {name: float(limit) for name, limit in limits.items() if limit is not None}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One for each load; their `meta` names the prompts by hash."""
        prompts = self.of.samples(tokenizer)
        if not prompts:
            raise UserError(f"benchmark.of={self.of.name} has no prompts")
        rates: list[float | int | None] = [*self.rates] if self.rates else [None]
        about = {"prompts": len(prompts), "prompts_of": self.of.name, "prompts_sha256": data_hash(prompts)}
        names = {rate: self.profile if rate is None else f"{self.profile}-{rate:g}" for rate in rates}
        return [
            Sample(
                id=names[rate],
                prompt="",
                answers=(),
                max_new_tokens=self.new_tokens or max(prompt.max_new_tokens for prompt in prompts),
                chat=False,
                meta={"task": names[rate], "profile": self.profile, "rate": rate and float(rate), **about},
            )
            for rate in rates
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {}
