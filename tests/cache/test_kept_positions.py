"""Where a layer's kept tokens lie: the histogram as text, and that every method tells it truly."""

from itertools import combinations, pairwise
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.kept_positions import BINS, chosen_positions, decode, encode, kept_positions, positions_of_layers
from kvbench.evaluation.decode import generate
from tests.support.every_method import LAYERS, N, model, pass_of, setting
from tests.support.representatives import REPRESENTATIVES

STEP = 1 / 51  # between two letters
UNTOLD = {"pooling_merge"}  # no entry is one token's
UNITED = {"spindle", "spindlekv_paper"}


def slowly(kept: list[list[int]], n: int) -> list[float]:
    """The share of each stretch that is kept, head by head and token by token."""
    bins = min(n, BINS)
    shares = []
    for stretch in range(bins):
        tokens = [p for p in range(n) if p * bins // n == stretch]
        shares.append(sum(p in head for head in kept for p in tokens) / (len(kept) * len(tokens)))
    return shares


@given(st.data())
def test_the_text_is_the_histogram_to_a_step(data):
    n = data.draw(st.integers(1, 300))
    count = data.draw(st.integers(1, n))
    seed = data.draw(st.integers(0, 99))
    heads = data.draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(seed)
    kept = torch.stack([torch.randperm(n, generator=generator)[:count].sort().values for _ in range(heads)])
    told = decode(kept_positions(kept, n).text)
    exact = slowly(kept.tolist(), n)
    assert len(told) == len(exact) == min(n, BINS)
    for share, true in zip(told, exact, strict=True):
        assert abs(share - true) <= STEP
        assert (share == 0) == (true == 0) and (share == 1) == (true == 1)


@given(st.data())
def test_marks_count_every_stretch_between_them_and_leave_the_text_as_it_is(data):
    n = data.draw(st.integers(1, 300))
    marks = tuple(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=6, unique=True).map(sorted)))
    chosen = torch.rand(2, 3, n, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99)))) < 0.4
    for layer, positions in zip(chosen, positions_of_layers(chosen, marks), strict=True):
        assert positions.text == chosen_positions(layer).text
        assert positions == chosen_positions(layer, marks)
        for start, end in combinations(marks, 2):
            assert positions.share(start, end) == pytest.approx(layer[:, start:end].float().mean().item())
    count = int(chosen[0].sum(dim=1).min())
    if count:
        indices = torch.stack([head.nonzero()[:count, 0] for head in chosen[0]])
        exact = torch.zeros_like(chosen[0]).scatter_(1, indices, True)
        assert kept_positions(indices, n, marks).share(*marks[:2]) == chosen_positions(exact, marks).share(*marks[:2])
    assert kept_positions(None, n, marks).share(*marks[:2]) == 1


def test_sinks_and_recent_tokens_are_a_few_letters():
    n = 6400
    kept = torch.cat([torch.arange(200), torch.arange(n - 100, n)])[None]
    assert kept_positions(kept, n).text == "Z2a61Z"
    assert kept_positions(kept[:, 1:], n).text == "YZa61Z"  # one token is missing, and it shows
    assert kept_positions(None, n).text == "Z64"
    assert kept_positions(torch.tensor([[5000]]), n).text == "a50ba13"  # one of a hundred is not nothing
    assert encode([]) == "" and decode("") == []


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_every_method_records_its_kept_positions(name):
    """The mean of the shares, weighted by the stretches' sizes, is the share of tokens that the layer kept.

    Positions are averaged over the heads that select, r1 of SpindleKV counts the union of a group's heads.
    """
    one = setting(name, 0.3)
    source, budget = pass_of(one, N)
    compressed = source.compress(one.method, budget)
    generate(model(), compressed.caches, compressed.logits, 4, frozenset())  # some compress at the first token
    starts = [-(-stretch * N // BINS) for stretch in range(BINS + 1)]
    sizes = [end - start for start, end in pairwise(starts)]
    told = [cache.kept.positions and cache.kept.positions.text for cache in compressed.caches]
    assert len(told) == LAYERS
    if name in UNTOLD:
        assert told == [None] * LAYERS
        return
    for text, cache in zip(told, compressed.caches, strict=True):
        shares = decode(text)
        mean = sum(share * size for share, size in zip(shares, sizes, strict=True)) / N
        if name in UNITED:
            assert abs(mean - cache.kept.nominal / N) <= STEP
            assert mean <= cache.kept.r1 + STEP
        else:
            assert abs(mean - cache.kept.r1) <= STEP


@pytest.mark.parametrize("name", sorted(set(REPRESENTATIVES) - UNTOLD))
def test_every_method_counts_between_marks(name, monkeypatch):
    """A mark at every position: the shares of single tokens make up the text."""
    one = setting(name, 0.3)
    source, budget = pass_of(one, N)
    for layer in source.state.layers:
        monkeypatch.setattr(layer, "marks", tuple(range(N + 1)))
    compressed = source.compress(one.method, budget)
    generate(model(), compressed.caches, compressed.logits, 2, frozenset())
    starts = [-(-stretch * N // BINS) for stretch in range(BINS + 1)]
    for cache in compressed.caches:
        tokens = [cache.kept.positions.share(at, at + 1) for at in range(N)]
        assert encode([fmean(tokens[a:b]) for a, b in pairwise(starts)]) == cache.kept.positions.text


@pytest.mark.parametrize("name", ["full", "streaming_llm", "h2o", "pyramidkv", "snapkv_paper", "simlayerkv", "squeeze"])
def test_positions_are_those_of_the_keys_in_the_cache(name):
    """Found again by looking for every key of the prompt among those that are stored."""
    one = setting(name, 0.3)
    source, budget = pass_of(one, N)
    for layer, cache in zip(source.state.layers, source.compress(one.method, budget).caches, strict=True):
        stored = cache.k.view[0]  # [heads, k, head_dim]
        prompt = layer.keys.repeat_interleave(len(stored) // len(layer.keys), dim=0)
        there = (prompt[:, :, None] == stored[:, None]).all(dim=-1).any(dim=-1)  # [heads, n]
        exact = slowly([head.nonzero().squeeze(1).tolist() for head in there], N)
        assert all(abs(a - b) <= STEP for a, b in zip(decode(cache.kept.positions.text), exact, strict=True))


def test_a_pruned_prefill_tells_positions_of_the_whole_prompt():
    one = setting("pyramidinfer", 0.3)
    source, budget = pass_of(one, N)
    caches = source.compress(one.method, budget).caches
    for layer, cache in zip(source.state.layers, caches, strict=True):
        exact = slowly([layer.positions.tolist()], N)
        assert [share > 0 for share in decode(cache.kept.positions.text)] == [share > 0 for share in exact]
    assert caches[0].kept.positions.text == f"Z{BINS}" and "a" in caches[-1].kept.positions.text


@pytest.mark.parametrize("text", ["a99999999999", f"a{'9' * 5000}", "Z40" * 9])
def test_a_text_of_more_stretches_than_a_prompt_has_is_read_no_further(text):
    assert len(decode(text)) == BINS + 1
