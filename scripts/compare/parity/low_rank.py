"""Palu's decomposition of a matrix and xKV's of a prompt's layers, against what attention reads of ours."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from kvbench.methods import XKV, Palu, Selection
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.leverage import UNROTATED
from scripts.compare.parity.tensors import real_layers

HEADS, HEAD_DIM, LAYERS, N = 3, 64, 4, 260
SHARES = (0.05, 0.2, 0.5)


def palu(project: str, root: Path, file: str) -> Iterator[Agreement]:
    """The released function takes a weight [out, in]: here the vectors of all heads, whitened by nothing."""
    module, version = load(root, file), commit(root)
    for source, layers in (("random", random_layers()), ("SmolLM2-135M", prompts())):
        row = Agreement(
            project,
            version,
            "_per_head_whiten_decomposition_from_weight",
            "Palu",
            "float32",
            source,
            "restored numbers",
        )
        for (number, layer), share in product(enumerate(layers), SHARES):
            cache = Palu(share, HEADS).store(layer, Selection.everything(layer))
            for held, rows in ((cache.k, layer.keys), (cache.v, layer.values)):
                weight, rank = flat(rows).T, max(int(share * HEADS * HEAD_DIM + 1e-9), 1)
                left, right = module._per_head_whiten_decomposition_from_weight(weight, torch.eye(layer.n), rank)
                theirs = (left @ right).T
                row.near(flat(held.read()), theirs, rows.abs().amax(), f"{source}, layer {number}, rank {rank}")
        yield row


def xkv(project: str, root: Path, file: str) -> Iterator[Agreement]:
    """The released function is given float64: in float32 it is off by its own rounding."""
    module, version = load(root, file), commit(root)
    for source, layers in (("random", random_layers()), ("SmolLM2-135M", prompts())):
        row = Agreement(project, version, "fake_svd", "XKV", "float32", source, "restored numbers")
        for start, share in product(range(0, len(layers) - LAYERS + 1, LAYERS), SHARES):
            group = layers[start : start + LAYERS]
            caches = XKV(LAYERS, share, share).store_all(group, [Selection.everything(layer) for layer in group])
            rank = max(int(share * LAYERS * HEADS * HEAD_DIM + 1e-9), 1)
            for name in ("k", "v"):
                rows = [layer.keys if name == "k" else layer.values for layer in group]
                theirs = module.fake_svd(torch.cat(rows)[None].double(), rank)[0].float().split(HEADS)
                for cache, reference, original in zip(caches, theirs, rows, strict=True):
                    example = f"{source}, layers from {start}, rank {rank}"
                    row.near(getattr(cache, name).read(), reference, original.abs().amax(), example)
        yield row


def flat(rows: Tensor) -> Tensor:
    return rows.transpose(0, 1).flatten(1)


def state(keys: Tensor, values: Tensor) -> LayerState:
    return LayerState(keys, values, HEAD_DIM**-0.5, HEADS, UNROTATED)


def random_layers() -> list[LayerState]:
    """Keys and values whose channels lean on each other."""
    made = []
    for seed in range(2 * LAYERS):
        generator = torch.Generator().manual_seed(seed)
        mixing = torch.randn(2, HEADS * HEAD_DIM, HEADS * HEAD_DIM, generator=generator)
        mixing *= 0.98 ** torch.arange(HEADS * HEAD_DIM)[:, None]
        rows = torch.randn(2, N, HEADS * HEAD_DIM, generator=generator) @ mixing
        made.append(state(*(x.unflatten(1, (HEADS, -1)).transpose(0, 1) for x in rows)))
    return made


def prompts() -> list[LayerState]:
    return [state(layer.keys, layer.values) for _, layer in real_layers((400,), torch.float32)]
