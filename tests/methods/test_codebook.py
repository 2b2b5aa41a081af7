"""The codebook cache: what it holds, how it reads, what a decoded token does to it."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions, kept_positions
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods import Codebook, SpindleKV
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.ops.codebook_layout import smallest_integer
from kvbench.ops.rope import Rope
from kvbench.prefill import Needs, prefill
from tests.reference.plain_codebook import plain_codebook
from tests.support.codebook_layers import (
    ROPE,
    book_sizes,
    mixed_selection,
    read_keys,
    read_values,
    references,
    similar_layer,
    stream_sizes,
)
from tests.support.tiny import FAMILIES, prompt, random_layer, tiny_model

at_eviction_ratio = partial(SpindleKV, control=None)
SMALL = dict(window=8, theta_k=0.6, theta_v=0.5)


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
    storage = Codebook(0.9, 0.8, scope, reconstruct, window=8, ratio_over="query_heads")
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
    method = at_eviction_ratio(window=4, repeat=repeat, reconstruct=reconstruct, scope=scope, raw_window=raw_window)
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
    assert [len(sizes) for sizes in book_sizes(cache)] == [1 if scope == "layer" else len(streams)] * 2
    entries = sum(sum(sizes) for sizes in book_sizes(cache))
    expected = b * d * (entries + 2 * raw)
    seen = []
    books = [stream_sizes(cache, side) for side in (cache.k, cache.v)]
    for number, rows in enumerate(streams):
        sets = [{t for t in row.tolist() if t < first_raw} for row in rows]
        union = sorted(set().union(*sets))
        for sizes in books:
            width = 1 if sizes[number] <= 256 else 2
            expected += len(union) * (width + (b if reconstruct else 0))
        if union and union[-1] != len(union) - 1 and union not in seen[-1:]:
            expected += len(union)  # positions below 256
        seen.append(union)
        if any(s != set(union) for s in sets):
            expected += len(rows) * math.ceil(len(union) / 8)
    assert cache.nbytes == expected
    assert cache.nbytes == sum({t.data_ptr(): t.untyped_storage().nbytes() for t in cache.tensors()}.values())
    held = {id(t) for t in cache.tensors()}
    # besides, a dozen numbers per stream say where its part begins and how long it is
    places = [cache.layout.places, cache.layout.decoded, cache.k.sizes, cache.v.sizes]
    assert all(id(t) in held or any(t is numbers for numbers in places) for t in tensors_inside(cache))
    assert sum(t.numel() for t in places) <= 15 * len(streams)


def tensors_inside(thing, seen=None):
    """Every tensor reachable from an object's attributes, the model's rotation and what the record notes aside."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Rope | KeptPositions | Cuts):
        return []
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, list | tuple):
        return [t for part in thing for t in tensors_inside(part, seen)]
    return (
        [t for part in vars(thing).values() for t in tensors_inside(part, seen)] if hasattr(thing, "__dict__") else []
    )


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
@pytest.mark.parametrize("rows", [1, 2, 6])
def test_any_selection_without_merging_reads_as_the_tokens_selected(scope, rows):
    """Also where some heads dropped some of the last tokens: only those that all keep stay raw."""
    layer = similar_layer()
    indices = torch.stack([torch.randperm(60)[:35].sort().values for _ in range(rows)])
    cache = Codebook(theta_k=1, theta_v=1, scope=scope, window=20).store(layer, Selection(indices, 35))
    query = torch.randn(1, 6, 1, 8)
    expected = torch.empty_like(query)
    for head in range(6):
        chosen = indices[head * rows // 6]
        weights = (query[0, head] @ layer.keys[head // 3, chosen].T * layer.scaling).softmax(dim=-1)
        expected[0, head] = weights @ layer.values[head // 3, chosen]
    assert cache.attend(query, layer.scaling).allclose(expected, atol=1e-5)


def test_the_narrowest_integers_are_used():
    assert [smallest_integer(m) for m in (0, 255, 256, 65535, 65536)] == [
        torch.uint8, torch.uint8, torch.uint16, torch.uint16, torch.int32,
    ]  # fmt: skip
    layer = random_layer(n=400, head_dim=8, rope=ROPE)
    cache = Codebook(theta_k=0.999, theta_v=0.999, window=8).store(layer, Selection(torch.arange(1, 400)[None], 399))
    assert stream_sizes(cache, cache.k)[0] > 256 and references(cache, cache.k, 0).dtype == torch.uint16
    assert cache.streams.positions.dtype == torch.uint16
    assert [place.positions for place in cache.places] == [0, 0]  # one set for the layer is stored once
    assert len(cache.streams.positions) == cache.places[0].tokens


@given(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]), st.integers(0, 50))
def test_reconstruction_keeps_norms_and_stays_within_the_papers_bound(dtype, seed):
    layer = similar_layer(dtype=dtype, seed=seed)
    layer.values.mul_(100)  # squares beyond float16
    cache = Codebook(theta_k=0.9, theta_v=0.8, window=0).store(layer, Selection.everything(layer))
    slack = 4 * torch.finfo(dtype).eps
    for theta, true, read in (
        (0.9, layer.keys, read_keys(cache)),
        (0.8, layer.values, read_values(cache)),
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
    assert read_values(cache)[0].equal(layer.values[0][entries[references]])
    assert cache.k.magnitudes is None and cache.v.magnitudes is None


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


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_a_layer_without_any_token_reads_as_the_decoded_ones(scope):
    """Heads that share one budget with all layers may leave a layer none, if the scoring protects no token."""
    cache = Codebook(scope=scope).store(similar_layer(), Selection(torch.empty(2, 0, dtype=torch.int64), 0))
    keys, values = torch.randn(2, 1, 2, 1, 8)
    cache.update(keys, values)
    out = cache.attend(torch.randn(1, 6, 1, 8), 0.3)
    torch.testing.assert_close(out, values.repeat_interleave(3, dim=1))


def test_prefill_state_is_left_alone():
    layer = similar_layer(window=8)
    keys, values = layer.keys.clone(), layer.values.clone()
    cache = at_eviction_ratio(**SMALL).compress_layer(layer, 0, 2, 30)
    cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
    assert layer.keys.equal(keys) and layer.values.equal(values)


def test_a_model_without_rotation_is_refused():
    with pytest.raises(UserError, match="rotary"):
        Codebook().store(random_layer(), Selection.everything(random_layer()))


# ----------------------------------------------------------------------------------------- the ratio


def test_the_ratio_is_formula_15_as_printed_and_corrected():
    layer = similar_layer(dtype=torch.float16)
    selection = mixed_selection(layer, 30)
    cache = Codebook(0.9, 0.8, window=0, ratio_over="query_heads").store(layer, selection)
    kept, d = cache.kept, 8
    retained, entries = 2 * 6 * 30, sum(sum(sizes) for sizes in book_sizes(cache))
    assert kept.r1 == 30 / 60 and kept.r2 == entries / retained
    assert kept.r3 == pytest.approx((d + 8 / (16 + 1)) / d)  # 8 bit references, 16 bit keys
    overhead = (8 / 16 + 1) / d
    assert kept.overhead == pytest.approx(overhead)
    assert kept.corrected == pytest.approx(kept.r1 * (kept.r2 + overhead))


def test_raw_vectors_count_as_entries_and_pay_no_overhead():
    layer = similar_layer()
    coded, raw = (Codebook(0.9, 0.8, window=w).store(layer, Selection.everything(layer)).kept for w in (0, 60))
    assert raw == Kept(60, 240, 240, 1.0, 1.0, 0.0, positions=kept_positions(None, 60))
    assert coded.r2 < 1 and coded.overhead > 0
