"""What a method says of its layers is what it promises, whichever functions a subclass overrides."""

from dataclasses import dataclass

import pytest

from kvbench.evaluation.cache_checks import RuleBroken
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import allocation_seconds
from kvbench.methods import Eviction, SqueezeAttention, StreamingLLM
from kvbench.runner.method_rules import Trial, streams
from kvbench.runner.request import check_memory


class Logged:
    """Notes that it was called, and no more."""

    def compress(self, state, budget):
        self.called = True
        return super().compress(state, budget)


@dataclass
class LoggedEviction(Logged, Eviction):
    pass


@dataclass
class LoggedStreaming(Logged, StreamingLLM):
    pass


@dataclass
class Forgetful(Eviction):
    """Its layers depend on each other, and it does not say so."""

    def compress(self, state, budget):
        return super().compress(state, budget)[::-1]


@pytest.mark.parametrize("kind", [LoggedEviction, LoggedStreaming])
def test_a_method_that_only_logs_is_streamed_divided_and_measured_as_its_base(kind):
    check_memory("stream", [Setting("logged", kind(), "{}", ratio=0.2)])
    assert SqueezeAttention(policy=kind()).policy.divisible


def test_the_time_of_its_allocation_is_measured():
    assert allocation_seconds(LoggedEviction(), 20, 100, 4) is not None


def test_kvbench_check_finds_a_method_that_forgets_to_say_that_its_layers_depend_on_each_other():
    with pytest.raises(RuleBroken, match="memory=stream gives other tokens"):
        streams(Trial(Setting("forgetful", Forgetful(), "{}", ratio=0.2)))
