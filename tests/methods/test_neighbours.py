"""The graph that float32 similarities give, with few pairs computed exactly, is that of exact ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.methods.spindlekv.ops.neighbours import Bits, Lists, neighbours
from kvbench.ops.directions import directions
from tests.reference.plain_codebook import adjacent


def around(centres, n, d, noise, seed):
    """Directions of n vectors near one of `centres`, distinct."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(centres, d, generator=generator)[torch.randint(centres, (n,), generator=generator)]
    return directions(x + noise * torch.randn(n, d, generator=generator)).unique(dim=0)


def exact(units, theta):
    return adjacent(units, units, theta).fill_diagonal_(False).numpy()


def matrix(graph, m):
    out = np.zeros((m, m), dtype=bool)
    for node in range(m):
        row = graph.row(node)
        assert (np.diff(row) > 0).all()
        out[node, row] = True
    return out


@given(
    st.integers(1, 5),
    st.integers(1, 90),
    st.sampled_from([2, 64, 128, 256]),
    st.sampled_from([1e-7, 1e-3, 0.2]),
    st.integers(0, 10_000),
    st.data(),
)
def test_neighbours_are_those_of_exact_similarities_even_at_theta(centres, n, d, noise, seed, data):
    units = around(centres, n, d, noise, seed)
    cosines = (units @ units.T).flatten().tolist()
    theta = data.draw(st.one_of(st.sampled_from([0.3, 0.95, 0.999]), st.sampled_from(cosines)))
    if not -1 < theta < 1:
        return
    expected = exact(units, theta)
    assert (matrix(neighbours(units, theta), len(units)) == expected).all()
    assert (matrix(Bits(units, theta), len(units)) == expected).all()


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_torchs_precision_of_products_does_not_change_the_graph(precision):
    units = around(300, 700, 64, 0.01, 0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        graph = neighbours(units, 0.98)
    finally:
        torch.set_float32_matmul_precision(before)
    assert isinstance(graph, Lists)
    assert (matrix(graph, len(units)) == exact(units, 0.98)).all()


@given(st.integers(1, 60), st.sampled_from([0.01, 0.3]), st.integers(0, 1000))
def test_degrees_and_shares_are_sums_of_weights_in_lists_and_bits(n, noise, seed):
    units = around(2, n, 8, noise, seed)
    m = len(units)
    adjacency = exact(units, 0.9)
    weights = np.random.default_rng(seed).integers(1, 9, m)
    some = np.flatnonzero(weights % 2)
    a, b = np.triu(adjacency).nonzero()
    for graph in (Lists([a], [b], m), Bits(units, 0.9)):
        assert graph.degrees(weights).tolist() == (adjacency @ weights).tolist()
        columns, shares = graph.shares(some, weights)
        assert np.bincount(columns, shares, m).tolist() == (weights[some] @ adjacency[some]).tolist()


def test_nothing_is_adjacent_at_one():
    units = around(1, 20, 4, 1e-7, 0)
    assert not matrix(neighbours(units, 1.0), len(units)).any()
