"""OmniKV: which layers choose and read, what a query reads, and the bytes of that."""

import copy

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV, OmniKV
from kvbench.methods.omnikv import FilterLayer, ReadingLayer
from kvbench.models.attending_layer import attend_one_by_one
from kvbench.ops.softmax import Softmax
from kvbench.prefill import Needs, prefill
from tests.support.quantised import TOLERANCE
from tests.support.tiny import LAYOUTS, prompt, random_state, tiny_model

D, N, SCALING = 8, 20, 0.3


def omnikv(**options) -> OmniKV:
    return OmniKV(**({"filters": [0], "of": 3, "wait": 0} | options))


def made(budget=6, dtype=torch.float32, layers=3, **options):
    return omnikv(**options).compress(random_state(layers, n=N, dtype=dtype), budget)


def kinds(count: int, **options) -> str:
    """d for a layer that reads everything, f for a filter, r for one that reads what was chosen."""
    caches = OmniKV(**options).compress(random_state(count, n=4), 2)
    return "".join({DenseLayer: "d", FilterLayer: "f", ReadingLayer: "r"}[type(cache)] for cache in caches)


def test_layers_after_a_filter_and_its_waits_read_up_to_the_next_filter():
    assert kinds(32) == "ddfdrrrrfdrrrrrrrrfdrrrrrrrrrrrr"
    assert kinds(8, filters=[1, 3], of=8, wait=2) == "dddfddrr"  # nobody reads what layer 1 could choose
    assert kinds(16) == "dfdrfdrrrfdrrrrr"  # 1, 4 and 9 of 16
    assert kinds(4, filters=[0, 1], of=4, wait=0) == "dfrr"


def step(caches, dtype=torch.float32, scaling=SCALING):
    """One token through all layers; its queries, keys and values, and what each layer answers."""
    rows = [[torch.randn(1, heads, 1, D).to(dtype) for heads in (6, 2, 2)] for _ in caches]
    outputs = []
    for cache, (query, key, value) in zip(caches, rows, strict=True):
        cache.update(key, value)
        outputs.append(cache.attend(query, scaling))
    return rows, outputs


def plain(query, keys, values, tokens, scaling):
    """Attention over `tokens` in float64, [6, D]."""
    logits = query[0, :, 0].double().view(2, 3, D) @ keys[:, tokens].double().mT
    logits = logits * (scaling.scaling if isinstance(scaling, Softmax) else scaling)
    if isinstance(scaling, Softmax):
        logits = scaling.softcap * (logits / scaling.softcap).tanh()
        sink = scaling.sinks.double().view(2, 3, 1)
        weights = torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = logits.softmax(dim=-1)
    return (weights @ values[:, tokens].double()).view(6, D)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("by", ["attention", "logits"])
@pytest.mark.parametrize("rule", [SCALING, Softmax(SCALING, 2.0, torch.linspace(-1, 1, 6))], ids=["plain", "bent"])
def test_readers_attend_to_what_their_filter_chose_and_to_decoded_tokens(rule, by, dtype):
    torch.manual_seed(0)
    state = random_state(3, n=N, dtype=dtype)
    caches = omnikv(by=by).compress(state, 6)
    keys, values = ([getattr(layer, name) for layer in state.layers] for name in ("keys", "values"))
    for _ in range(4):
        rows, outputs = step(caches, dtype, rule)
        keys = [torch.cat([old, new[1][0]], 1) for old, new in zip(keys, rows, strict=True)]
        values = [torch.cat([old, new[2][0]], 1) for old, new in zip(values, rows, strict=True)]
        logits = rows[0][0][0, :, 0].double().view(2, 3, D) @ keys[0][:, :N].double().mT * SCALING
        if isinstance(rule, Softmax):
            logits = 2.0 * (logits / 2.0).tanh()
        scores = (logits.softmax(-1) if by == "attention" else logits).flatten(0, 1).amax(0)
        chosen = scores.topk(6).indices.sort().values.tolist()
        count = keys[0].shape[1]
        for index, tokens in enumerate([[*range(count)], *[[*chosen, *range(N, count)]] * 2]):
            expected = plain(rows[index][0], keys[index], values[index], tokens, rule)
            assert_close(outputs[index][0, :, 0].double(), expected, **TOLERANCE[dtype])
        assert caches[0].choices == {}  # nothing is held between tokens


def test_a_block_of_tokens_is_one_token_after_the_other():
    torch.manual_seed(1)
    single = made()
    block = copy.deepcopy(single)
    rows, outputs = zip(*[step(single) for _ in range(3)], strict=True)
    for index, cache in enumerate(block):
        assert not cache.takes_blocks
        query, key, value = (torch.cat([row[index][part] for row in rows], dim=2) for part in range(3))
        out = attend_one_by_one(cache, key, value, query, SCALING)
        assert_close(out, torch.cat([one[index] for one in outputs], dim=2))
    assert block[0].choices is block[2].choices is not single[0].choices


def test_bytes_held_are_fullkvs_and_readers_read_the_budget_and_what_was_decoded():
    caches = made(wait=1)
    for _ in range(2):
        step(caches)
    token = 2 * 2 * D * 4
    assert [cache.filled_bytes for cache in caches] == [22 * token] * 3
    assert [cache.read_bytes for cache in caches] == [22 * token, 22 * token, (6 + 2) * token]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_of_the_prompt_is_fullkv_bit_for_bit_and_a_smaller_one_is_not(layout):
    model = tiny_model(layout=layout)
    state = prefill(model, prompt(100), Needs())
    expected = generate(model, FullKV().compress(state, 100), state.logits, 30, frozenset())
    outputs = [generate(model, omnikv().compress(state, budget), state.logits, 30, frozenset()) for budget in (100, 4)]
    assert outputs[0].tokens == expected.tokens != outputs[1].tokens


@pytest.mark.parametrize("filters", [[], [3, 2], [2, 2], [2, 32]])
def test_filters_are_ascending_layers_of_the_model(filters):
    with pytest.raises(UserError, match="must be ascending numbers of layers below of=32"):
        OmniKV(filters=filters)
