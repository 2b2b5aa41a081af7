"""What methods and their parts say of themselves, and that what says nothing is found out."""

from dataclasses import dataclass, field

import pytest

from kvbench.evaluation.cache_checks import RuleBroken
from kvbench.evaluation.settings import Setting
from kvbench.methods import (
    AdaKV,
    Codebook,
    Eviction,
    FullKV,
    HeadKV,
    Kivi,
    Pyramid,
    SimLayerKV,
    SpindleKV,
    WindowAttention,
)
from kvbench.methods.facts import Launches, allowed, forget, launches, most_share, never_full, overspends
from kvbench.methods.gear.storage import GEAR
from kvbench.methods.palu import Palu
from kvbench.methods.scoring.around_context import AroundContext
from kvbench.runner.method_rules import (
    FULL,
    RULES,
    Trial,
    exceptions,
    keeps_the_budget,
    rules_of,
    takes_every_length,
)


def test_a_part_speaks_for_the_method_that_has_it():
    assert never_full(Eviction()) == never_full(FullKV()) == overspends(Eviction()) == ""
    assert never_full(FullKV(Kivi())) == never_full(SimLayerKV(delta=None, others=FullKV(Kivi()))) == "quantised"
    assert never_full(SimLayerKV()) == "lazy by threshold" and never_full(SpindleKV()) == "coded"
    rounded = Eviction(Pyramid(alloc="official"), heads=AdaKV())
    assert overspends(rounded) == "the released allocation rounds its step down"
    assert overspends(Eviction(Pyramid(), heads=AdaKV(rounding="official"))).startswith("the released code rounds")


@pytest.mark.parametrize("over", ["kv_heads", "query_heads"])
def test_a_codebook_of_what_query_heads_select_breaks_no_rule(over):
    """Over KV heads it counts what any head of a group keeps, which is more than the budget of one."""
    method = Eviction(scoring=WindowAttention(8), granularity="query_head", storage=Codebook(ratio_over=over))
    trial = Trial(Setting("composed", method, "{}", ratio=0.5))
    assert bool(overspends(method)) == method.counts_groups == (over == "kv_heads")
    for rule in (keeps_the_budget, takes_every_length):
        rule(trial)


def test_numbers_are_the_most_of_all_parts():
    assert launches(Eviction()) == Launches(60, 0, 1)
    assert launches(Eviction(storage=Palu())) == Launches(80, 0, 4)
    assert launches(SimLayerKV(others=FullKV(GEAR()), storage=Palu())) == Launches(90, 0, 4)
    assert most_share(Eviction(), 120) == 1 and most_share(Eviction(storage=Palu()), 64) == 1.5
    assert allowed(Eviction(), 2, 100) == 2 and allowed(Eviction(scoring=AroundContext()), 2, 100) == 4
    assert allowed(Eviction(scoring=AroundContext()), 2, 3) == 3


def test_every_part_forgets_what_it_divided_for_an_earlier_prompt():
    heads, spindle = HeadKV(), SpindleKV()
    heads._table(20, 80, ((0.5, 1.0),))
    spindle.eviction.budgets.of_layers(40, 100, 4)
    forget(Eviction(heads=heads))
    forget(spindle)
    assert heads._table.cache_info().currsize == spindle.eviction.budgets.of_layers.cache_info().currsize == 0


@dataclass
class Forgetful(FullKV):
    """It takes a budget, keeps whole layers in 4 bits, and says nothing of either."""

    storage: Kivi = field(default_factory=lambda: Kivi(residual=32))
    takes_budget = True
    never_full = ""


class Silent(Kivi):
    never_full = ""


@dataclass
class Honest(Forgetful):
    never_full = "quantised"
    overspends = "every token stays"


def test_what_a_method_does_not_say_is_a_broken_rule_and_what_it_says_is_none():
    forgetful = Trial(Setting("forgetful", Forgetful(Silent(residual=32)), "{}", 0.5))
    assert exceptions(forgetful.method) == {} and FULL in rules_of(forgetful)
    with pytest.raises(RuleBroken, match="of 12 tokens are FullKV's"):
        RULES[FULL](forgetful)
    with pytest.raises(RuleBroken, match="with a budget of 12 of 120 tokens it keeps 120 per layer and head"):
        RULES["it keeps at most its budget, and reports how much"](forgetful)
    honest = Trial(Setting("honest", Honest(), "{}", 0.5))
    assert exceptions(honest.method) == {FULL: "quantised"} and FULL not in rules_of(honest)
    RULES["it keeps at most its budget, and reports how much"](honest)
