"""What holds for every file of conf/method, composed as the command composes it."""

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kvbench.cache.base import storage_bytes
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation.decode import generate
from kvbench.evaluation.passes import SharedPass, StreamedPass
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods import FullKV
from kvbench.ops.rope import Rope
from kvbench.prefill import FullPrefill, Needs, PrefillPlan
from kvbench.prefill.pruned import PrunedPrefill
from tests.support.config import NAMES, method_configs
from tests.support.tiny import prompt, random_state, tiny_model

LAYERS, HEAD_DIM = 4, 32  # KIVI's groups are of 32 channels
N, STEPS = 120, 12
# Published windows are longer than a test's prompt: the same methods with windows that bind, and some layers lazy.
SMALL = {
    "Codebook": {"window": 8},
    "ColumnSums": {"recent": 8},
    "Kivi": {"residual": 32},
    "OnlyLazyLayers": {"window": 24, "delta": 0.123},
    "PyramidInfer": {"min_ctx": 8, "exceed_length": 4},
    "RandomLayers": {"window": 24},
    "SimLayerKV": {"window": 24, "delta": 0.123},
    "SpindleKV": {"window": 8},
    "StreamingLLM": {"recent": 8},
    "WindowAttention": {"window": 8},
}
# A budget that does not bind makes all others FullKV.
NEVER_FULL = {
    "kivi": "quantised",
    "kivi_longbench_2bit": "quantised",
    "kivi_longbench_4bit": "quantised",
    "minicache": "merged",
    "minicache_kivi4": "merged and quantised",
    "minicache_simlayerkv": "merged",
    "minicache_simlayerkv_q4": "merged and quantised",
    "only_lazy_layers": "not lazy by threshold",
    "pyramidinfer_official": "its decay is fixed",
    "pyramidkv_kivi4": "quantised",
    "simlayerkv": "lazy by threshold",
    "simlayerkv_decode": "lazy by threshold",
    "simlayerkv_decode_kivi4": "lazy by threshold and quantised",
    "simlayerkv_kivi4": "lazy by threshold and quantised",
    "simlayerkv_paper": "lazy by threshold",
    "simlayerkv_paper_q4": "lazy by threshold and quantised",
    "simlayerkv_snapkv": "lazy by threshold",
    "snapkv_codebook": "coded",
    "snapkv_kivi4": "quantised",
    "spindle": "coded",
    "spindlekv_paper": "coded",
}
# All others keep at most the budget, in the mean over layers.
OVERSPENDS = {
    "pyramidkv_paper": "the released allocation rounds its step down",
    "simlayerkv_snapkv": "lazy layers keep theirs whatever the budget",
}


@cache
def configs() -> dict[str, dict]:
    return method_configs(*NAMES)


def small(config):
    """A method's configuration with the values of SMALL wherever a part gives one."""
    if not isinstance(config, dict):
        return config
    changed = SMALL.get(config.get("_target_", "").rpartition(".")[2], {})
    config = {key: small(value) for key, value in config.items()}
    return config | {key: value for key, value in changed.items() if config.get(key) is not None}


def setting(name: str, ratio: float | None = 0.5, budget: int | None = None, shipped: bool = False) -> Setting:
    config = copy.deepcopy(configs()[name])
    (one,) = build_settings({name: config if shipped else small(config)}, None if budget else ratio, budget)
    return one


@cache
def model():
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM)


@cache
def shared_pass(n: int, plan: PrefillPlan) -> SharedPass:
    return SharedPass(model(), prompt(n), plan, Needs(32, True, True))


def pass_of(one: Setting, n: int) -> tuple[SharedPass, int]:
    """The pass that a setting needs, and its budget."""
    budget = one.budget_at(n, LAYERS)
    return shared_pass(n, one.method.plan(n, LAYERS, budget)), budget


# methods whose pruning happens in a pass of their own: layers made up by `state` never went through it
PRUNED = [name for name in NAMES if isinstance(setting(name).method.plan(N, LAYERS, N), PrunedPrefill)]


@cache
@cache
def rope() -> Rope:
    return Rope.of(tiny_model(head_dim=HEAD_DIM))


def state(n: int, dtype: torch.dtype = torch.float32, scale: float = 1.0):
    """Random layers with heads for KIVI, and all that any method reads."""
    made = random_state(LAYERS, n=n, head_dim=HEAD_DIM, window=32, dtype=dtype, rope=rope())
    if scale != 1:
        for layer in made.layers:
            layer.keys, layer.values = layer.keys * scale, layer.values * scale
    return made


def steps(caches, count: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[Tensor]:
    """What `count` further tokens get for an answer, layer after layer."""
    generator = torch.Generator().manual_seed(7)
    out = []
    for _ in range(count):
        for layer in caches:
            query, key, value = (scale * torch.randn(1, heads, 1, HEAD_DIM, generator=generator) for heads in (6, 2, 2))
            layer.update(key.to(dtype), value.to(dtype))
            out.append(layer.attend(query.to(dtype), HEAD_DIM**-0.5))
    return out


def reachable(thing, found: dict[int, Tensor], passed: set[int]) -> None:
    """Every tensor that can be got at from `thing`, by the address of its storage; the model's RoPE is no part."""
    if id(thing) in passed or isinstance(thing, Rope):
        return
    passed.add(id(thing))
    if isinstance(thing, Tensor):
        found[thing.untyped_storage().data_ptr()] = thing
    elif isinstance(thing, dict):
        for value in thing.values():
            reachable(value, found, passed)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            reachable(value, found, passed)
    elif type(thing).__module__.startswith("kvbench"):
        reachable(vars(thing), found, passed)


def check_bytes(caches) -> None:
    """What layers hold is what they list, and nothing is counted twice."""
    found: dict[int, Tensor] = {}
    reachable(list(caches), found, set())
    listed = [tensor for layer in caches for tensor in layer.tensors()]
    # the graph of objects may mention a few empty tensors and no others
    hidden = set(found) - {tensor.untyped_storage().data_ptr() for tensor in listed}
    assert storage_bytes(found[address] for address in hidden) == 0
    assert sum(layer.nbytes for layer in caches) == storage_bytes(listed)


def check_kept(one: Setting, caches, n: int, budget: int, full_bytes: int) -> ReserveRatio:
    """Nominal and realised sizes of a prompt of n tokens, and the ratios."""
    layers = [layer.kept for layer in caches]
    for kept in layers:
        assert 0 < kept.retained <= kept.total
        assert kept.r1 * n <= kept.nominal + 1e-9 and kept.nominal >= 1
    if one.method.takes_budget and one.name not in OVERSPENDS:
        assert sum(kept.r1 for kept in layers) * n <= LAYERS * budget + 1e-6
    ratio = ReserveRatio.of(layers, sum(layer.late_bytes or layer.nbytes for layer in caches), full_bytes)
    # MiniCache counts a direction for unmerged tokens too, as the paper does
    # nothing to merge leaves merging its overhead: magnitudes, references
    most = 1.5 if "minicache" in one.name else 1.05 if NEVER_FULL.get(one.name) == "coded" else 1 + 1e-9
    assert 0 < ratio.r <= most and ratio.r_bytes > 0
    return ratio


def test_the_lists_of_exceptions_name_methods_that_exist():
    assert set(NEVER_FULL) <= set(NAMES) and set(OVERSPENDS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_from_prompt_to_answer(name):
    for ratio in (0.1, 0.3, 0.7):
        one = setting(name, ratio)
        source, budget = pass_of(one, N)
        tensors = [x for layer in source.state.layers for x in vars(layer).values() if isinstance(x, Tensor)] + [
            source.state.logits
        ]
        before = [x.clone() for x in tensors]
        runs = []
        for _ in range(2):
            compressed = source.compress(one.method, budget)
            caches = compressed.caches
            check_bytes(caches)
            check_kept(one, caches, N, budget, compressed.full_bytes)
            stored = [x.clone() for layer in caches for x in layer.tensors()]
            output = generate(model(), caches, compressed.logits, STEPS, frozenset())
            check_bytes(caches)
            check_kept(one, caches, N, budget, compressed.full_bytes)
            assert [layer.get_seq_length() for layer in caches] == [N + STEPS - 1] * LAYERS
            runs.append((output.tokens, stored))
        (tokens, stored), (again, stored_again) = runs
        assert tokens == again and len(tokens) == STEPS
        assert all(torch.equal(a, b) for a, b in zip(stored, stored_again, strict=True))
        assert all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True))
        if not one.method.takes_budget:
            return


@pytest.mark.parametrize("name", [name for name in NAMES if setting(name).method.layerwise])
def test_streaming_makes_the_caches_of_a_shared_pass(name):
    one = setting(name, 0.3)
    source, budget = pass_of(one, N)
    streamed = StreamedPass(model(), prompt(N), one.method.plan(N, LAYERS, budget)).compress(one.method, budget)
    shared = source.compress(one.method, budget)
    assert streamed.peak_bytes <= shared.peak_bytes
    outputs = [generate(model(), x.caches, x.logits, STEPS, frozenset()).tokens for x in (streamed, shared)]
    assert outputs[0] == outputs[1]
    assert [layer.kept for layer in streamed.caches] == [layer.kept for layer in shared.caches]


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_that_does_not_bind_is_fullkv_where_that_is_promised(name):
    budget = N + STEPS
    one = setting(name, budget=budget)
    source, _ = pass_of(one, N)
    full = shared_pass(N, FullPrefill())
    expected = generate(model(), FullKV().compress(full.state, N), full.state.logits, STEPS, frozenset()).tokens
    compressed = source.compress(one.method, budget)
    early = check_kept(one, compressed.caches, N, budget, compressed.full_bytes)
    tokens = generate(model(), compressed.caches, compressed.logits, STEPS, frozenset()).tokens
    if name in NEVER_FULL:
        late = check_kept(one, compressed.caches, N, budget, compressed.full_bytes)
        ratio = late if one.method.compress_at == "first_decode" else early
        assert ratio.r < 1 and ratio.r_bytes < 1, f"{name} kept everything: {NEVER_FULL[name]}?"
        return
    assert torch.equal(compressed.logits, full.state.logits)
    assert tokens == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_neither_overflows_nor_loses_its_numbers(name, dtype):
    """Keys and values of up to some hundreds: squares of their norms are beyond float16."""
    scale = 100.0
    one = setting(name, 0.3)
    made = state(N, dtype, scale)
    caches = one.method.compress(made, one.budget_at(N, LAYERS))
    check_bytes(caches)
    for out in steps(caches, 6, dtype, scale):
        assert out.dtype == dtype and out.isfinite().all()


# around windows, sinks + windows, residuals and the budget
EDGES = [1, 2, 3, 4, 5, 7, 8, 9, 23, 24, 25, 27, 28, 29, 31, 32, 33, 39, 40, 41, 63, 64, 65, 72, 73]


@pytest.mark.parametrize("name", NAMES)
def test_no_length_of_a_prompt_is_too_short_or_odd(name):
    one = setting(name, budget=40)
    for n in EDGES:
        made = state(n)
        budget = one.budget_at(n, LAYERS)
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        assert all(out.isfinite().all() for out in steps(caches, 2))
        check_bytes(caches)
        assert [layer.get_seq_length() for layer in caches] == [n + 2] * LAYERS


@pytest.mark.parametrize("name", PRUNED)
def test_a_pruned_pass_takes_every_length_too(name):
    one = setting(name, 0.3)
    for n in EDGES:
        source, budget = pass_of(one, n)
        compressed = source.compress(one.method, budget)
        check_kept(one, compressed.caches, n, budget, compressed.full_bytes)
        assert len(generate(model(), compressed.caches, compressed.logits, 4, frozenset()).tokens) == 4


@pytest.mark.parametrize("name", NAMES)
def test_as_shipped_around_published_windows(name):
    """1024 recent tokens, with and without 4 sinks and the decoded token."""
    one = setting(name, 0.2, shipped=True)
    for n in (31, 32, 33, 128, 1023, 1024, 1027, 1028, 1029):
        made = state(n)
        budget = one.budget_at(n, LAYERS)
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        steps(caches, 1)
        check_bytes(caches)


@settings(max_examples=150)
@given(
    name=st.sampled_from(NAMES),
    n=st.integers(1, 140),
    ratio=st.floats(0.01, 1),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_length_ratio_and_dtype(name, n, ratio, dtype):
    one = setting(name, ratio)
    made, budget = state(n, dtype), one.budget_at(n, LAYERS)
    outcomes = []
    for _ in range(2):
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        outcomes.append(steps(caches, 3, dtype))
        check_bytes(caches)
    assert all(a.isfinite().all() and torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


@settings(max_examples=100)
@given(name=st.sampled_from(NAMES), n=st.integers(1, 2000), ratio=st.floats(0.001, 1), layers=st.integers(1, 40))
def test_a_floor_is_reached_and_no_more_is_asked_than_the_floor(name, n, ratio, layers):
    one = setting(name, ratio, shipped=True)
    requested, budget = one.requested_tokens(n), one.budget_at(n, layers)
    assert budget == max(requested, one.method.floor(n, layers))
    assert replace(one, ratio=1.0).requested_tokens(n) == n
    plan = one.method.plan(n, layers, budget)
    if isinstance(plan, PrunedPrefill) and one.method.takes_budget:
        assert sum(plan.lengths(n)) <= budget * layers
