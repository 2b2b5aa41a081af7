"""What a method says of its layers is what it promises, whichever functions a subclass overrides."""

from dataclasses import dataclass

import pytest

from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import RuleBroken
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import allocation_seconds
from kvbench.methods import Eviction, KNorm, SqueezeAttention, StreamingLLM
from kvbench.runner.method_rules import Trial, streams
from kvbench.runner.request import check_memory
from tests.support.tiny import random_state


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
class LoggedLayers(Eviction):
    """Notes which layers were compressed."""

    def compress_layer(self, layer, index, num_layers, budget):
        self.called = [*getattr(self, "called", []), index]
        return super().compress_layer(layer, index, num_layers, budget)


@dataclass
class LoggedOrder(KNorm):
    def order(self, *arguments):
        self.called = True
        return super().order(*arguments)


@dataclass
class SmallestFirst(KNorm):
    """It has an order of its own, and does not say so."""

    def order(self, order, *_):
        return order.flip(1)


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


def test_every_layer_is_compressed_by_the_function_that_a_subclass_overrides():
    method = LoggedLayers()
    method.compress(random_state(3, window=32), 35)
    assert method.called == [0, 1, 2]


def test_an_order_that_is_only_logged_is_that_of_the_scores():
    logged, layer = LoggedOrder(), random_state(1).layers[0]
    assert logged.orders_by_scores
    kept = [Eviction(scoring=scoring).select(layer, 0, 1, 20) for scoring in (logged, KNorm())]
    assert logged.called and kept[0].indices.equal(kept[1].indices) and kept[0].cuts is not None


def test_an_order_that_a_scoring_does_not_declare_is_an_error():
    with pytest.raises(UserError, match="SmallestFirst has an order of its own: it needs orders_by_scores = False"):
        Eviction(scoring=SmallestFirst()).select(random_state(1).layers[0], 0, 1, 20)


@dataclass
class BareTensors(Eviction):
    def compress_layer(self, layer, index, num_layers, budget):
        return layer.keys


def test_a_layer_that_is_no_cache_is_one_line():
    state = random_state(3, window=32)
    stream = BareTensors().layer_stream(3, 40)
    for compress in (lambda: BareTensors().compress(state, 40), lambda: stream.take(state.layers[0])):
        with pytest.raises(
            UserError, match=r"^BareTensors.compress_layer returned an object of the type Tensor: it must"
        ):
            compress()
