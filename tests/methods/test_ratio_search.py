"""control=exact: the eviction is searched that comes to the ratio asked for."""

from itertools import islice
from weakref import WeakSet

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvbench.benchmarks.haystack import generated
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Codebook, FullKV, LinearPyramid, SpindleKV
from kvbench.methods.spindlekv.ratio_search import find_budget
from kvbench.prefill import PrefillState, prefill
from tests.support.tiny import ratio_of


@pytest.mark.heavy
@pytest.mark.parametrize("on", ["r", "r_bytes"])
@pytest.mark.parametrize("target", [0.2, 0.35, 0.5])
def test_control_meets_the_ratio_within_a_hundredth(embedded_state, on, target):
    method = SpindleKV(control="exact", control_on=on, repeat=on == "r_bytes")
    caches = method.compress(embedded_state, target * embedded_state.n)
    assert getattr(ratio_of(caches, embedded_state), on) == pytest.approx(target, rel=0.01)


@pytest.fixture(scope="module")
def embedded_state(embedded):
    """A real prompt's state, cut to every sixth layer."""
    text = "".join(islice(generated(seed=5), 30))
    state = prefill(embedded.model, embedded.encode(text, chat=False)[:400], SpindleKV().needs)
    return PrefillState(state.layers[::6], state.logits)


@pytest.mark.heavy
def test_what_cannot_be_met_is_approached_and_told_by_the_ratio(embedded_state):
    n = embedded_state.n
    method = SpindleKV(control="exact", repeat=False)
    most = ratio_of(SpindleKV(repeat=False, control=None).compress(embedded_state, n), embedded_state)
    least = ratio_of(SpindleKV(repeat=False, control=None).compress(embedded_state, 33), embedded_state)
    assert least.r > 0.02 and most.r < 0.99
    assert ratio_of(method.compress(embedded_state, n), embedded_state) == most
    assert ratio_of(method.compress(embedded_state, 0.02 * n), embedded_state) == least


@pytest.mark.heavy
def test_a_target_that_no_eviction_reaches_is_marked_from_above_and_from_below(embedded_state):
    n = embedded_state.n
    method = SpindleKV(repeat=False)
    for target, missed in ((0.02, True), (0.3, False), (0.99, True)):
        ratio = ratio_of(method.compress(embedded_state, target * n), embedded_state)
        assert method.missed(ratio, target) == missed
    ratio = ratio_of(method.compress(embedded_state, 0.3 * n), embedded_state)
    assert not SpindleKV(control=None).missed(ratio, 0.9)
    assert not FullKV().missed(ratio, 0.9)


@pytest.mark.heavy
def test_unfolded_heads_reach_every_published_ratio_over_the_models_own_cache(embedded_state):
    """Over query heads no eviction comes to more than r3 / g, a third here, whatever the ratio."""
    n = embedded_state.n
    for target in (0.148, 0.252, 0.401):
        method = SpindleKV()
        ratio = ratio_of(method.compress(embedded_state, target * n), embedded_state)
        assert ratio.r == pytest.approx(target, rel=0.01) and not method.missed(ratio, target)
    unfolded = SpindleKV(ratio_over="query_heads")
    ratio = ratio_of(unfolded.compress(embedded_state, 0.401 * n), embedded_state)
    assert ratio.r < 0.36 and unfolded.missed(ratio, 0.401)


@pytest.mark.heavy
def test_the_search_covers_few_layers_holds_one_cover_of_each_and_packs_each_once(embedded_state, monkeypatch):
    alive, most, covered, packed = WeakSet(), [0], [], []
    cover, pack = Codebook._covered, Codebook._pack

    def counted(self, *parts):
        made = cover(self, *parts)
        alive.add(made)
        covered.append(made.kept.nominal)
        most[0] = max(most[0], len(alive))
        return made

    def counted_pack(self, covers):
        packed.extend(own.kept.nominal for own in covers)
        return pack(self, covers)

    monkeypatch.setattr(Codebook, "_covered", counted)
    monkeypatch.setattr(Codebook, "_pack", counted_pack)
    layers = len(embedded_state.layers)
    caches = SpindleKV().compress(embedded_state, 0.3 * embedded_state.n)
    assert most[0] <= layers < len(covered) <= 4 * layers
    assert packed == [cache.kept.nominal for cache in caches]


@pytest.mark.heavy
def test_control_leaves_the_choice_of_tokens_to_the_eviction(embedded_state):
    """The controlled caches are those of the uncontrolled method at some budget."""
    caches = SpindleKV(control="exact").compress(embedded_state, 0.1 * embedded_state.n)
    nominal = [cache.kept.nominal for cache in caches]
    budgets = (step / 4 for step in range(4 * 33, 4 * embedded_state.n))
    assert nominal in [LinearPyramid().tokens(b, embedded_state.n, 32, len(nominal)) for b in budgets]


@example(1.3075, 2.037, 0.28222, 0.279478, 2563)  # flat, and at its low end just above the target
@given(st.floats(0.01, 2), st.floats(0.3, 3), st.floats(0.0, 0.3), st.floats(0.01, 1), st.integers(50, 5000))
def test_the_search_meets_any_rising_ratio_or_ends_at_an_end(slope, power, offset, target, n):
    tries = []

    def ratio_at(x):
        tries.append(x)
        return offset + slope * (x / n) ** power

    x = find_budget(ratio_at, target, 33, n, target * n, 0.01)
    assert 33 <= x <= n and x in tries
    reached = ratio_at(x)
    if offset + slope < target * 0.99:
        assert x == n
    elif ratio_at(33) > target * 1.01:
        assert x == 33
    else:
        assert reached == pytest.approx(target, rel=0.01 + 1e-9)
    assert len(tries) < 20


@given(st.lists(st.floats(40, 590), min_size=2, max_size=30, unique=True), st.floats(0.05, 0.95))
def test_a_ratio_that_moves_in_steps_ends_at_the_nearest_step(places, target):
    """No miss where another x would have met the target: steps may be as narrow as a hundredth of a token."""
    places = sorted({round(place, 2) for place in places})

    def ratio_at(x):
        return (1 + sum(place <= x for place in places)) / (1 + len(places))

    reached = ratio_at(find_budget(ratio_at, target, 33, 600, target * 600, 0.01))
    levels = [ratio_at(x) for x in (33, *places)]
    nearest = min(abs(level - target) for level in levels)
    assert abs(reached - target) <= max(nearest, 0.01 * target) + 1e-12


def test_a_ratio_reaches_the_control_as_asked_and_a_budget_as_given():
    config = {"spindle": {"_target_": "kvbench.methods.SpindleKV", "control": "exact"}}
    assert build_settings(config, 0.15, None)[0].budget_at(333, 30) == pytest.approx(0.15 * 333)
    assert build_settings(config, None, 20)[0].budget_at(333, 30) == 20
    config["spindle"]["control"] = None
    assert build_settings(config, 0.15, None)[0].budget_at(333, 30) == 49
    with pytest.raises(UserError, match="at least 33"):
        build_settings(config, None, 20)
    config["spindle"]["evict"] = False
    assert [s.label for s in build_settings(config, [0.1, 0.2], None)] == ["spindle"]
