"""The greedy codebook: equal to the plain reading entry for entry, and a cover as the paper describes it."""

import math
import tracemalloc
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kvbench.benchmarks.haystack import generated
from kvbench.methods.spindlekv.ops.greedy_cover import Cover, greedy_cover, greedy_covers
from kvbench.methods.spindlekv.ops.neighbours import TILE
from kvbench.ops.directions import GRID, directions
from kvbench.ops.operator import implementation, use_kernels
from kvbench.prefill import Needs, prefill
from tests.reference.plain_codebook import adjacent, plain_codebook
from tests.reference.voting_cover import voting_cover


@pytest.fixture(scope="module", params=["auto", "torch"], autouse=True)
def _kernels(request):
    """Both that a CPU has: compiled loops and the reference."""
    with use_kernels(request.param):
        yield


def clustered(n, d, clusters, noise, seed, dtype=torch.float32):
    """Vectors around a few centres, of different lengths: every degree occurs."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(clusters, d, generator=generator)
    which = torch.randint(clusters, (n,), generator=generator)
    x = centres[which] + noise * torch.randn(n, d, generator=generator)
    return (x * (0.5 + 3 * torch.rand(n, 1, generator=generator))).to(dtype)


def same(cover, plain):
    assert cover.entries.tolist() == plain[0].tolist()
    assert cover.references.tolist() == plain[1].tolist()


vectors = st.builds(
    clustered,
    n=st.integers(1, 60),
    d=st.sampled_from([1, 2, 8, 33]),
    clusters=st.integers(1, 6),
    noise=st.sampled_from([0.0, 0.05, 0.2, 0.6]),
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
thetas = st.sampled_from([0.3, 0.6, 0.9, 0.95, 0.98, 0.999, 1.0])


@given(vectors, thetas)
def test_it_is_the_plain_reading_entry_for_entry(x, theta):
    same(greedy_cover(x, theta), plain_codebook(x, theta))


@given(vectors, thetas)
def test_rounds_of_votes_pick_what_one_pick_after_the_other_does(x, theta):
    voted, plain = voting_cover(x, theta), plain_codebook(x, theta)
    same(voted, plain)
    assert 1 <= len(voted.votes) <= len(plain[0])


@given(vectors, thetas, st.randoms(use_true_random=False))
def test_counts_stand_for_copies_written_out(x, theta, random):
    counts = torch.tensor([random.randint(1, 4) for _ in range(len(x))])
    cover = greedy_cover(x, theta, counts)
    entries, references = plain_codebook(x.repeat_interleave(counts, dim=0), theta)
    source = torch.arange(len(x)).repeat_interleave(counts)
    assert cover.entries.tolist() == source[entries].tolist()
    assert cover.references[source].tolist() == references.tolist()


@given(st.lists(vectors, min_size=1, max_size=4), thetas, st.integers(0, 5))
def test_several_covers_at_once_are_each_its_own(sets, theta, room):
    sets = [x.float()[:, :1] for x in sets] if len({x.shape[1] for x in sets}) > 1 else [x.float() for x in sets]
    lengths = torch.tensor([len(x) for x in sets])
    n = int(lengths.max()) + room
    padded = torch.stack([torch.cat([x, torch.ones(n - len(x), x.shape[1])]) for x in sets])
    entries, sizes, references = greedy_covers(padded, lengths, torch.ones(len(sets), n, dtype=torch.long), theta)
    for x, picked, size, refers in zip(sets, entries, sizes, references, strict=True):
        same(Cover(picked[:size], refers[: len(x)]), plain_codebook(x, theta))
        assert not picked[size:].any() and not refers[len(x) :].any()


@given(vectors, thetas)
def test_every_vector_is_near_its_entry_and_no_two_entries_are_near(x, theta):
    cover = greedy_cover(x, theta)
    units = directions(x)
    own = units[cover.entries[cover.references]]
    equal = (units == own).all(dim=1)
    assert (equal | ((units * own).sum(dim=1) > theta)).all()
    between = adjacent(units[cover.entries], units[cover.entries], theta).fill_diagonal_(False)
    assert not between.any()
    assert cover.references[cover.entries].tolist() == list(range(len(cover.entries)))


@given(vectors, thetas)
def test_duplicates_share_an_entry(x, theta):
    cover = greedy_cover(torch.cat([x, x]), theta)
    assert cover.references[: len(x)].equal(cover.references[len(x) :])
    assert cover.entries.max() < len(x)  # the first of equals is the one picked


@given(vectors)
def test_the_similarity_of_a_pair_does_not_depend_on_how_it_is_computed(x):
    units = directions(x)
    integers = (units * GRID).long()
    assert integers.double().equal(units * GRID)
    exact = (integers @ integers.T).double() / GRID**2  # integer arithmetic: no rounding to speak of
    assert exact.equal(units @ units.T)
    assert exact[:1].equal(units[:1] @ units.T)
    assert exact.equal(units.flip(-1) @ units.flip(-1).T)


def test_similarity_is_the_cosine_to_float32_precision():
    x = clustered(200, 64, 5, 0.3, seed=1)
    true = torch.nn.functional.cosine_similarity(x.double()[:, None], x.double()[None], dim=-1)
    assert (directions(x) @ directions(x).T - true).abs().max() < 2e-7


def test_the_threshold_is_strict():
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8]])  # cosine 0.6, on the grid exactly what the grid makes of it
    cosine = float(directions(x)[0] @ directions(x)[1])
    assert len(greedy_cover(x, cosine).entries) == 2
    assert len(greedy_cover(x, cosine - 1e-9).entries) == 1


def test_degrees_come_from_the_graph_and_not_from_similarities():
    # b has the larger sum of similarities, a the more neighbours above the threshold
    angles = torch.tensor([0.0, 20.0, -20.0, 90.0, 105.0, 130.0, 50.0]).deg2rad()
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    similarity = directions(x) @ directions(x).T
    assert similarity.sum(dim=1).argmax() != 0
    assert greedy_cover(x, 0.93).entries[0] == 0


def test_the_first_neighbour_picked_is_the_reference_not_the_most_similar():
    # the hub at 10 degrees goes first and takes 20, which then is nearer to the entry at 29
    angles = torch.tensor([0.0, 2.0, 4.0, 10.0, 20.0, 29.0, 38.0]).deg2rad()
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    cover = greedy_cover(x, math.cos(math.radians(10.5)))
    assert cover.entries.tolist() == [3, 5]
    assert cover.references.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_zero_vectors_and_huge_ones_are_covered():
    x = torch.zeros(5, 4, dtype=torch.float16)
    x[1] = 60000
    x[3] = 6e-8
    cover = greedy_cover(x, 0.98)
    assert cover.references.tolist() == [0, 1, 0, 1, 0]
    assert cover.entries.tolist() == [0, 1]


def test_nothing_gives_an_empty_codebook():
    cover = greedy_cover(torch.empty(0, 8), 0.9)
    assert cover.entries.shape == cover.references.shape == (0,)


def test_one_token_throughout_is_one_entry():
    assert greedy_cover(torch.ones(50, 8), 0.98).entries.tolist() == [0]


@pytest.fixture(scope="module")
def real(embedded):
    """Pre-RoPE keys and values of a real prompt in a low, a middle and the last layer, one head."""
    text = "".join(islice(generated(seed=3), 20))
    state = prefill(embedded.model, embedded.encode(text, chat=False)[:320], Needs())
    positions = torch.arange(state.n)
    out = {}
    for index in (0, 12, 29):
        layer = state.layers[index]
        out[f"key {index}"] = layer.rope.rotate(layer.keys, -positions)[0]
        out[f"value {index}"] = layer.values[0]
    return out


@pytest.mark.heavy
@pytest.mark.parametrize("which", ["key 0", "value 0", "key 12", "value 12", "key 29", "value 29"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_real_vectors_give_the_plain_codebook(real, which, dtype):
    x = real[which].to(dtype)
    theta = 0.98 if which.startswith("key") else 0.95
    cover = greedy_cover(x, theta)
    same(cover, plain_codebook(x, theta))


@pytest.mark.heavy
def test_a_looser_threshold_needs_fewer_entries_of_real_vectors(real):
    sizes = [len(greedy_cover(real["value 12"], theta).entries) for theta in (0.5, 0.8, 0.95, 0.999)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


class LargestFloat(TorchDispatchMode):
    """Elements of the largest floating point tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("clusters", [4, 400])
def test_memory_is_the_adjacency_in_bits_or_lists_and_tiles(clusters):
    n = 4000
    x = clustered(n, 8, clusters, 0.05, seed=0)
    tracemalloc.start()
    with LargestFloat() as seen:  # a mode does not look into an operator, so its function is called
        covers = implementation(greedy_covers.__wrapped__, x.device)
        covers(x[None], torch.tensor([n]), torch.ones(1, n, dtype=torch.long), 0.95)
    arrays = tracemalloc.get_traced_memory()[1]  # NumPy's, at their peak
    tracemalloc.stop()
    assert seen.elements <= TILE
    assert arrays < 4 * n * n / 8 + 20 * TILE
