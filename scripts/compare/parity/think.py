"""ThinK's choice of key channels: `key_pruner_query_driven` of the released code, and what it leaves of the keys."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.methods import ThinK
from kvbench.methods.selection import Selection
from kvbench.ops.bits import unpack_bits
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES, Layer, sources

SHARES, RECENT = (0.2, 0.4, 0.5, 0.7), (32, 128)
LENGTHS = (150, 512, 1300)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for name, dtype in DTYPES.items():
        for label, source in sources(dtype, LENGTHS, real=(300, 900), head_dim=64):
            sets, rows = (
                Agreement(project, version, "key_pruner_query_driven", "ThinK", name, label, unit)
                for unit in ("channel sets", "older keys")
            )
            for number, (layer, share, recent) in enumerate(product(source, SHARES, RECENT)):
                compare(module, layer, share, recent, sets, rows, f"case {number}, n={layer.n}, share={share}")
            yield from (sets, rows)


def compare(
    module: ModuleType, layer: Layer, share: float, recent: int, sets: Agreement, rows: Agreement, example: str
) -> None:
    """One layer with its groups unfolded, as the released code has them: each query head chooses for itself."""
    keys = layer.keys.repeat_interleave(layer.group, dim=0)
    channels, scores, older = released(module, layer.queries, keys, share, recent)

    def exact() -> tuple[Tensor, Tensor]:
        return released(module, layer.queries.float(), keys.float(), share, recent)[:2]

    state = LayerState(keys, keys, 1.0, len(keys), queries=layer.queries)
    cache = ThinK(share=share, recent=recent).store(state, Selection.everything(state))
    mask = unpack_bits(cache.channels, keys.shape[2])
    ours = mask.sort(dim=1, descending=True, stable=True).indices[:, : cache.older.shape[2]]
    sets.tally(ours, channels, scores, example, exact)
    rows.cases += 1
    for mine, theirs, my_keys, their_keys in zip(ours, channels, cache.older, older, strict=True):
        if torch.equal(mine, theirs):  # else they hold other channels
            rows.compared += 1
            rows.equal += torch.equal(my_keys, their_keys)
            rows.different += not torch.equal(my_keys, their_keys)


def released(module: ModuleType, queries: Tensor, keys: Tensor, share: float, recent: int):
    """Kept channels [heads, c], ascending, the scores of all [heads, head_dim] and the older keys [heads, k, c]."""
    with recorded_topk() as scores:
        pruned, _, mask = module.key_pruner_query_driven(keys[None], queries[None], recent, share)
    heads, n, _ = keys.shape
    channels = mask[0].nonzero()[:, 1].view(heads, -1)
    return channels, scores[0][0], pruned.view(heads, n - recent, -1)
