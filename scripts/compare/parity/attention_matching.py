"""Attention Matching's released algorithms against ReferenceAttention, MatchingPursuit and Matched: the keys that KV
heads keep, and what the references find in them.

The power iteration of the released code begins with random numbers; here, as in kvbench, with ones.
"""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import Eviction, Matched, MatchingPursuit, ReferenceAttention
from kvbench.methods.attention_matching.layer_cache import BiasedLayer, biased_attention
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import LenientModule, commit, load
from scripts.compare.parity.tensors import DTYPES, LAYOUTS, Layer, random_layer, real_layers

FOLDER = "compaction/algorithms"
LENGTHS, REAL, SHARES = (150, 400), (400,), (0.05, 0.2, 0.5)
RIDGE = 1e-14  # the released code has none, and computes in float32
NEAR = 1e-3  # of the norm of the outputs


class Torch(LenientModule):
    """torch, with ones for random numbers."""

    randn = staticmethod(torch.ones)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    base, version = load(root, f"{FOLDER}/base.py"), commit(root)
    base.torch = Torch(torch)
    algorithms = {
        "HighestAttentionKeysCompaction": (
            load(
                root,
                f"{FOLDER}/highest_attention_keys.py",
                base=SimpleNamespace(CompactionAlgorithm=base.CompactionAlgorithm),
            ),
            {"nnls_iters": 2, "nnls_lower_bound": math.exp(-3), "nnls_upper_bound": math.exp(3), "score_method": "rms"},
            lambda n: Eviction(scoring=ReferenceAttention(n, 0, 0), storage=Matched(n, 0, 0, ridge=RIDGE)),
        ),
        "OMPCompaction": (
            load(root, f"{FOLDER}/omp.py", base=SimpleNamespace(CompactionAlgorithm=base.CompactionAlgorithm)),
            {"nnls_lower_bound": math.exp(-7), "nnls_upper_bound": math.exp(7), "k_choice": 4},
            lambda n: Eviction(
                scoring=MatchingPursuit(n, 0, 0, 4, ridge=RIDGE),
                storage=Matched(n, 0, 0, -7.0, 7.0, 0, RIDGE),
            ),
        ),
    }
    for (name, (module, options, method)), dtype in product(algorithms.items(), DTYPES):
        algorithm = getattr(module, name)(**options)
        for source, layers in sources(DTYPES[dtype]):
            kvbench = "ReferenceAttention" if name.startswith("H") else "MatchingPursuit"
            sets = Agreement(project, version, name, kvbench, dtype, source)
            fits = Agreement(project, version, name, "Matched", dtype, source, "fits")
            fits.note = f"equal: outputs within {NEAR:g} of the norm; rounding: others that fit no worse; same keys"
            for layer, share in product(layers, SHARES):
                compare(sets, fits, algorithm, method(layer.n), layer, int(share * layer.n))
            yield sets
            yield fits


def sources(dtype: torch.dtype) -> Iterator[tuple[str, list[Layer]]]:
    made = []
    for seed, (layout, n) in enumerate(product(LAYOUTS, LENGTHS)):
        layer = random_layer(layout, n, dtype, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        layer.values = torch.randn(layer.keys.shape, generator=generator).to(dtype)
        made.append(layer)
    yield "random", made
    yield "SmolLM2-135M", [layer for _, layer in real_layers(REAL, dtype, every=6)]


def compare(sets: Agreement, fits: Agreement, algorithm: object, method: Eviction, layer: Layer, budget: int) -> None:
    state, heads = layer.state(), len(layer.keys)
    state.values = layer.values
    cache = method.compress_layer(state, 0, 1, budget)
    kept = method.select(state, 0, 1, budget).indices
    rows = layer.queries.unflatten(0, (heads, -1)).flatten(1, 2)  # [KV heads, references, head_dim]
    fitted = [
        algorithm.compute_compacted_cache(*tensors, budget)
        for tensors in zip(layer.keys, layer.values, rows, strict=True)
    ]
    theirs = torch.tensor([fit[3] for fit in fitted])
    scores = Eviction(scoring=ReferenceAttention(layer.n, 0, 0)).scores(state, 0)
    alike = Layer(layer.source, layer.queries.float(), layer.keys.float(), layer.values.float())

    def exact() -> tuple[Tensor, Tensor]:
        wide = zip(alike.keys, alike.values, rows.float(), strict=True)
        return torch.tensor([algorithm.compute_compacted_cache(*tensors, budget)[3] for tensors in wide]), scores

    sets.tally(kept, theirs, scores, f"{layer.source}, n={layer.n}, budget={budget}", exact)
    fits.cases += 1
    for head in range(heads):
        if set(kept[head].tolist()) == set(theirs[head].tolist()):
            tally_fit(fits, cache, fitted[head], rows[head].float(), head, layer)


def tally_fit(row: Agreement, cache: BiasedLayer, fitted: tuple, references: Tensor, head: int, layer: Layer) -> None:
    """The attention that references find, in float32 over both sides' stored numbers, beside that over all keys."""
    keys, bias, values, _ = (x.float() if isinstance(x, Tensor) else x for x in fitted)
    place = slice(head, head + 1)
    mine, other, whole = (
        attention(references, *(x.float() for x in stored), layer.keys.shape[2] ** -0.5)
        for stored in (
            (cache.k.view[:, place], cache.v.view[:, place], cache.bias[place]),
            (keys[None, None], values[None, None], bias[None]),
            (layer.keys[None, place], layer.values[None, place], torch.zeros(1, layer.n)),
        )
    )
    gap = float((mine - other).norm() / whole.norm())
    errors = [float((output - whole).norm() / whole.norm()) for output in (mine, other)]
    row.compared += 1
    if gap <= NEAR:
        row.equal += 1
    elif errors[0] <= 1.01 * errors[1]:
        verdict = "rounding" if row.dtype == "float32" else "dtype_rounding"
        setattr(row, verdict, getattr(row, verdict) + 1)
        row.largest_gap = max(row.largest_gap, gap)
    else:
        row.different += 1
        row.examples.append(f"{layer.source}, n={layer.n}, {len(bias)} keys, head {head}: errors {errors}")


def attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attention of queries [r, head_dim], none of which hides a key."""
    return biased_attention(queries[None, :, None], keys, values, bias, scaling)[0, :, 0]
