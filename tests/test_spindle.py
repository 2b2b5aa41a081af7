"""SpindleKV: allocation, scores, the codebook cache at prefill and while decoding, ratios and control."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.codebook import Book, Coded, smallest_integer
from kvbench.decode import generate
from kvbench.errors import UserError
from kvbench.methods import (
    Codebook,
    ColumnSums,
    Dense,
    Eviction,
    FullKV,
    LinearPyramid,
    SpindleKV,
    Uniform,
    WindowAverage,
)
from kvbench.methods.control import meet
from kvbench.methods.selection import Selection, reduce_group, top_indices
from kvbench.prefill import Needs, prefill
from kvbench.ratio import Kept, ReserveRatio
from kvbench.rope import Rope
from kvbench.settings import build_settings
from tests.plain_codebook import plain_codebook
from tests.tiny import FAMILIES, LAYOUTS, prompt, random_layer, random_state, tiny_model

ROPE = Rope.of(tiny_model())
SMALL = dict(window=8, theta_k=0.6, theta_v=0.5)


def similar_layer(n=60, heads=6, kv_heads=2, dtype=torch.float32, seed=0, **more):
    """A layer whose vectors lie near a few directions, so that books are smaller than what they hold."""
    layer = random_layer(heads, kv_heads, n, dtype=dtype, seed=seed, rope=ROPE, **more)
    generator = torch.Generator().manual_seed(seed)
    for x, rotate in ((layer.keys, True), (layer.values, False)):
        centres = torch.randn(6, x.shape[2], generator=generator)
        plain = centres[torch.randint(6, x.shape[:2], generator=generator)] + 0.2 * x.float()
        x.copy_(ROPE.rotate(plain, torch.arange(n)) if rotate else plain)
    return layer


def mixed_selection(layer, k, seed=0):
    """Every query head keeps k tokens of its own and the last 8."""
    generator = torch.Generator().manual_seed(seed)
    context = layer.n - 8
    rows = [torch.randperm(context, generator=generator)[: k - 8].sort().values for _ in range(6)]
    tail = torch.arange(context, layer.n).expand(6, 8)
    return Selection(torch.cat([torch.stack(rows), tail], dim=1), k)


# ------------------------------------------------------------------------------------------- allocation


def test_the_worked_numbers_of_the_first_branch():
    # n = 8000, w = 32, r = 0.4, 32 layers
    tokens = LinearPyramid().tokens(3200, 8000, 32, 32)
    r_c = (3200 - 32) / (8000 - 32)
    assert r_c == pytest.approx(0.39759, abs=5e-6)
    assert LinearPyramid().ratios(r_c, 32)[0] == pytest.approx(0.74518, abs=5e-6)
    assert tokens[0] - 32 == 5937 and tokens[31] - 32 == 398
    assert sum(tokens) / 32 / 8000 == pytest.approx(0.39994, abs=5e-6)


def test_the_worked_numbers_of_the_second_branch():
    tokens = LinearPyramid().tokens(4800, 8000, 32, 32)
    assert (4800 - 32) / (8000 - 32) == pytest.approx(0.5984, abs=5e-5)
    assert LinearPyramid().ratios((4800 - 32) / (8000 - 32), 32)[31] == pytest.approx(0.19679, abs=5e-6)
    assert tokens[0] - 32 == 7968 and tokens[31] - 32 == 1568


@given(st.floats(0, 1), st.floats(0, 0.9), st.integers(1, 80))
def test_ratios_average_to_what_was_asked_and_stay_within_bounds(r_c, beta, m):
    ratios = LinearPyramid(beta).ratios(r_c, m)
    assert sum(ratios) / m == pytest.approx(r_c, abs=1e-9)
    assert all(a >= b - 1e-12 for a, b in zip(ratios, ratios[1:], strict=False))
    assert all(min(beta, r_c) - 1e-9 <= ratio <= 1 + 1e-9 for ratio in ratios)


@pytest.mark.parametrize("beta", [0.0, 0.05, 0.3])
def test_the_branches_meet(beta):
    for knee in (beta, (1 + beta) / 2):
        low, high = (LinearPyramid(beta).ratios(knee + step, 5) for step in (-1e-9, 1e-9))
        assert low == pytest.approx(high, abs=1e-7)
    assert LinearPyramid(beta).ratios(beta / 2, 5) == [beta / 2] * 5


@given(st.integers(9, 400), st.integers(1, 40), st.data())
def test_layers_spend_no_more_than_asked_and_less_by_under_a_token_each(n, m, data):
    budget = data.draw(st.integers(9, n))
    if budget == n:
        return
    tokens = LinearPyramid().tokens(budget, n, 8, m)
    assert m * budget - m < sum(tokens) <= m * budget
    assert all(8 <= count <= n for count in tokens)


def test_below_the_window_only_the_window_is_left():
    assert LinearPyramid().tokens(5, 100, 8, 3) == [8, 8, 8]


# --------------------------------------------------------------------------------------------- scores


def test_window_scores_are_the_mean_over_the_windows_queries():
    layer = random_layer(n=40, window=8)
    group = layer.queries.unflatten(0, (2, 3))
    logits = torch.einsum("kgwd,knd->kgwn", group, layer.keys) * layer.scaling
    future = torch.arange(40) > torch.arange(32, 40)[:, None]
    attention = logits.masked_fill(future, -math.inf).softmax(dim=-1).flatten(0, 1)
    assert WindowAverage(8).votes(layer).allclose(attention.mean(dim=1), atol=1e-6)
    printed = WindowAverage(8, "printed").votes(layer)
    assert printed[:, 5].allclose(attention.sum(dim=1)[:, 5] / 35, atol=1e-6)


def test_the_window_norm_keeps_what_unpooled_snapkv_keeps_and_the_printed_one_later_tokens():
    layer = random_layer(n=200, window=8, rope=ROPE)
    kept = {}
    for norm in ("window", "printed"):
        method = SpindleKV(window=8, score_norm=norm)
        kept[norm] = method.select(layer, 0, 1, 60).indices
    expected = top_indices(layer.window_votes(8)[:, :192], 52)
    assert kept["window"][:, :52].equal(expected)
    assert kept["printed"].float().mean() > kept["window"].float().mean() + 5


def test_repeat_selects_per_query_head_and_otherwise_by_the_groups_mean():
    layer = random_layer(n=60, window=8, rope=ROPE)
    unfolded = SpindleKV(window=8).select(layer, 0, 3, 30).indices
    shared = SpindleKV(window=8, repeat=False).select(layer, 0, 3, 30).indices
    assert len(unfolded) == 6 and len(shared) == 2
    k = shared.shape[1] - 8
    expected = top_indices(reduce_group(layer.window_votes(8), 2, "mean")[:, :52], k)
    assert shared[:, :k].equal(expected)


# ------------------------------------------------------------------------------------- what is stored


def attention_over(cache, query, scaling):
    """Attention of every query head over what the cache says its K and V are, written out."""
    keys, values, masks = cache.read_keys(), cache.read_values(), cache.masks()
    per_stream = query.shape[1] // len(keys)
    out = torch.empty_like(query)
    for head in range(query.shape[1]):
        stream = head // per_stream
        k, v = keys[stream], values[stream]
        if masks[stream] is not None:
            k, v = k[masks[stream][head % per_stream]], v[masks[stream][head % per_stream]]
        out[0, head] = (query[0, head] @ k.T * scaling).softmax(dim=-1) @ v
    return out


def plain_reconstruction(layer, selection, theta, of, reconstruct, window, scope):
    """K before RoPE or V as each selecting head reads it: unfolded vectors, plain codebook, magnitudes."""
    n = layer.n
    source = ROPE.rotate(layer.keys, -torch.arange(n)) if of == "k" else layer.values
    heads = len(selection.indices)
    group = heads // layer.num_key_value_heads
    kept = [[int(t) for t in row if t < n - window] for row in selection.indices]
    books = [[h] for h in range(heads)] if scope == "head" else None
    if scope == "kv_group":
        books = [list(range(h, h + group)) for h in range(0, heads, group)]
    elif scope == "layer":
        books = [list(range(heads))]
    out, entries = [{} for _ in range(heads)], 0
    for members in books:
        rows = sorted((h // group, t, h) for h in members for t in kept[h])  # KV head, position, query head
        x = torch.stack([source[kv, t] for kv, t, _ in rows])
        picks, references = plain_codebook(x, theta)
        entries += len(picks)
        for (_, t, h), vector, reference in zip(rows, x, references, strict=True):
            medoid = x[picks[reference]]
            out[h][t] = medoid / medoid.norm() * vector.norm() if reconstruct else medoid
    return out, entries


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
@pytest.mark.parametrize("reconstruct", [True, False])
def test_the_cache_reads_as_a_plain_codebook_of_the_unfolded_vectors(scope, reconstruct):
    layer = similar_layer()
    selection = mixed_selection(layer, 30)
    storage = Codebook(0.9, 0.8, scope, reconstruct, window=8)
    cache = storage.store(layer, selection)
    keys, k_entries = plain_reconstruction(layer, selection, 0.9, "k", reconstruct, 8, scope)
    values, v_entries = plain_reconstruction(layer, selection, 0.8, "v", reconstruct, 8, scope)
    query = torch.randn(1, 6, 1, 8)
    expected = torch.empty_like(query)
    for head in range(6):
        tokens = sorted(keys[head])
        k = ROPE.rotate(torch.stack([keys[head][t] for t in tokens])[None], torch.tensor(tokens))[0]
        k = torch.cat([k, layer.keys[head // 3, -8:]])
        v = torch.cat([torch.stack([values[head][t] for t in tokens]), layer.values[head // 3, -8:]])
        expected[0, head] = (query[0, head] @ k.T * layer.scaling).softmax(dim=-1) @ v
    assert cache.attend(query, layer.scaling).allclose(expected, atol=1e-5)
    assert cache.kept.r2 == pytest.approx((k_entries + v_entries + 2 * 2 * 8) / (2 * 6 * 30))
    assert k_entries + v_entries < 0.8 * 2 * 6 * 22  # the book saves something, or nothing was tested


@given(
    n=st.integers(1, 50),
    layout=st.sampled_from([(4, 4), (6, 2), (4, 1)]),
    repeat=st.booleans(),
    reconstruct=st.booleans(),
    scope=st.sampled_from(["kv_group", "layer", "head"]),
    raw_window=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    share=st.floats(0.05, 1),
)
def test_bytes_are_the_sum_of_storages_and_the_formula(n, layout, repeat, reconstruct, scope, raw_window, dtype, share):
    layer = similar_layer(n, *layout, dtype=dtype, window=4)
    method = SpindleKV(window=4, repeat=repeat, reconstruct=reconstruct, scope=scope, raw_window=raw_window)
    budget = max(round(share * n), method.minimum_budget)
    cache = method.compress_layer(layer, 1, 3, budget)
    selection = method.select(layer, 1, 3, budget)
    b, d = dtype.itemsize, 8

    group = layout[0] // layout[1] if repeat else 1
    everyone = torch.arange(n).expand(layout[1] * group, n)
    indices = everyone if selection.indices is None else selection.indices
    first_raw = n - 4 if raw_window else n
    per_stream = 1 if scope == "head" else group
    streams = [indices[i : i + per_stream] for i in range(0, len(indices), per_stream)]
    raw = layout[1] * len([t for t in indices[0].tolist() if t >= first_raw])
    books = {id(s.keys.book): s.keys.book for s in cache.streams} | {id(s.values.book): s.values.book for s in cache.streams}
    entries = sum(len(book) for book in books.values())
    expected = b * d * (entries + 2 * raw)
    seen = []
    for rows, stream in zip(streams, cache.streams, strict=True):
        sets = [{t for t in row.tolist() if t < first_raw} for row in rows]
        union = sorted(set().union(*sets))
        for side in (stream.keys, stream.values):
            width = 1 if len(side.book) <= 256 else 2
            expected += len(union) * (width + (b if reconstruct else 0))
        if union and union[-1] != len(union) - 1 and union not in seen[-1:]:
            expected += len(union)  # positions below 256
        seen.append(union)
        if any(s != set(union) for s in sets):
            expected += len(rows) * math.ceil(len(union) / 8)
    assert cache.nbytes == expected
    assert cache.nbytes == sum({t.data_ptr(): t.untyped_storage().nbytes() for t in cache.tensors()}.values())
    held = {id(t) for t in cache.tensors()}
    assert all(id(t) in held for t in tensors_inside(cache))


def tensors_inside(thing, seen=None):
    """Every tensor reachable from an object's attributes, the model's rotation aside."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Rope):
        return []
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, list | tuple):
        return [t for part in thing for t in tensors_inside(part, seen)]
    return [t for part in vars(thing).values() for t in tensors_inside(part, seen)] if hasattr(thing, "__dict__") else []


def test_the_narrowest_integers_are_used():
    assert [smallest_integer(m) for m in (0, 255, 256, 65535, 65536)] == [
        torch.uint8, torch.uint8, torch.uint16, torch.uint16, torch.int32,
    ]  # fmt: skip
    layer = random_layer(n=400, head_dim=8, rope=ROPE)
    cache = Codebook(theta_k=0.999, theta_v=0.999, window=8).store(layer, Selection(torch.arange(1, 400)[None], 399))
    stream = cache.streams[0]
    assert len(stream.keys.book) > 256 and stream.keys.references.buffer.dtype == torch.uint16
    assert stream.positions.dtype == torch.uint16
    assert cache.streams[1].positions is stream.positions  # one set for the layer is stored once


@given(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]), st.integers(0, 50))
def test_reconstruction_keeps_norms_and_stays_within_the_papers_bound(dtype, seed):
    layer = similar_layer(dtype=dtype, seed=seed)
    layer.values.mul_(100)  # squares beyond float16
    cache = Codebook(theta_k=0.9, theta_v=0.8, window=0).store(layer, Selection.everything(layer))
    slack = 4 * torch.finfo(dtype).eps
    for theta, true, read in (
        (0.9, layer.keys, cache.read_keys()),
        (0.8, layer.values, cache.read_values()),
    ):
        true, read = true.float(), torch.stack(read).float()
        norms = true.norm(dim=-1)
        assert ((read - true).norm(dim=-1) <= norms * (math.sqrt(2 * (1 - theta)) + slack)).all()
        assert ((read.norm(dim=-1) - norms).abs() <= 2 * slack * norms).all()
        assert read.isfinite().all()


def test_without_reconstruction_a_vector_reads_as_its_entry():
    layer = similar_layer()
    cache = Codebook(0.9, 0.8, reconstruct=False, window=0).store(layer, Selection.everything(layer))
    entries, references = plain_codebook(layer.values[0], 0.8)
    assert cache.read_values()[0].equal(layer.values[0][entries[references]])
    assert all(s.keys.magnitudes is None and s.values.magnitudes is None for s in cache.streams)


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_before_rope_turn_into_the_models_own_keys(family):
    model = tiny_model(family)
    state = prefill(model, prompt(50), Needs())
    for layer in state.layers:
        positions = torch.arange(50)
        plain = layer.rope.rotate(layer.keys, -positions)
        assert not plain.allclose(layer.keys, atol=1e-2)
        assert layer.rope.rotate(plain, positions).allclose(layer.keys, atol=1e-5)
    # the projection itself: layer 0's keys come from the embeddings alone
    if family in ("llama", "mistral"):
        block = model.model.layers[0]
        embedded = block.input_layernorm(model.model.embed_tokens(prompt(50)))
        projected = block.self_attn.k_proj(embedded).view(50, 2, 8).transpose(0, 1)
        plain = state.layers[0].rope.rotate(state.layers[0].keys, -torch.arange(50))
        assert plain.allclose(projected, atol=1e-5)


def test_prefill_state_is_left_alone():
    layer = similar_layer(window=8)
    keys, values = layer.keys.clone(), layer.values.clone()
    cache = SpindleKV(**SMALL).compress_layer(layer, 0, 2, 30)
    cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
    assert layer.keys.equal(keys) and layer.values.equal(values)


def test_a_model_without_rotation_is_refused():
    with pytest.raises(UserError, match="rotary"):
        Codebook().store(random_layer(), Selection.everything(random_layer()))
