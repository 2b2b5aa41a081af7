"""KVTC beside an implementation that is not the authors', as theirs is not released: bits, and restored components.

That implementation has axes for each head and packs codes by bits. Its dynamic programme over a budget, without the
cost of axes, and its rounding are compared.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from kvbench.cache.coded.transform import TransformSequence, principal_axes
from kvbench.ops.bit_allocation import MOST, allocate
from scripts.compare.parity.agreement import ROUNDING, Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import real_layers

HEADS, HEAD_DIM = 2, 32
BITS = (1.0, 2.5, 4.0)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file, common=load(root, "src/common.py")), commit(root)
    for source, layers in (("random", random_rows()), ("SmolLM2-135M", prompts())):
        errors = Agreement(
            project, version, "dp_bit_allocation", "KVTC", "float32", source, "squared errors of allocations"
        )
        restored = Agreement(
            project, version, "uniform_quantize, uniform_dequantize", "KVTC", "float32", source, "restored components"
        )
        for (number, rows), bits in product(enumerate(layers), BITS):
            x = rows.transpose(0, 1).flatten(1)
            variances, _ = principal_axes(x - x.mean(dim=0))
            ours = allocate(variances, 1, 0, bits * x.shape[1])
            theirs = module.dp_bit_allocation(variances, int(bits * x.shape[1]), MOST)
            compare(errors, left(variances, ours), left(variances, theirs), f"{source}, tensors {number}, {bits} bits")
            held = TransformSequence(rows, bits, 0, 0, None)
            components = (x - held.mean) @ held.axes.T
            normal = module.compute_quant_params(components, held.bits)
            back = torch.stack(
                [
                    module.uniform_dequantize(module.uniform_quantize(column, *how), *how)
                    for column, *how in zip(
                        components.T,
                        held.bits.tolist(),
                        normal.scales.tolist(),
                        normal.zero_points.tolist(),
                        strict=True,
                    )
                ],
                dim=1,
            )
            low, step = held.normal
            quotients = (components - low) / step
            tied = (quotients - quotients.floor() - 0.5).abs() < 1e-4  # half-way between two codes
            values = low + step * held.codes().float()
            restored.near(values, back, components.abs().amax(), f"{source}, tensors {number}, {bits} bits", tied)
        yield from (errors, restored)


def left(variances: Tensor, bits: Tensor) -> float:
    return float((variances / 4.0**bits).sum())


def compare(row: Agreement, ours: float, theirs: float, example: str) -> None:
    gap = abs(ours - theirs) / theirs
    row.cases += 1
    row.compared += 1
    row.equal += gap == 0
    row.rounding += 0 < gap <= ROUNDING
    row.different += gap > ROUNDING
    row.largest_gap = max(row.largest_gap, gap)
    if gap > ROUNDING:
        row.examples.append(f"{example}: {ours:.6g} and {theirs:.6g}")


def random_rows() -> list[Tensor]:
    made = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        mixed = torch.randn(400, HEADS * HEAD_DIM, generator=generator) * 0.9 ** torch.arange(HEADS * HEAD_DIM)
        turn = torch.linalg.qr(torch.randn(HEADS * HEAD_DIM, HEADS * HEAD_DIM, generator=generator)).Q
        made.append((mixed @ turn).unflatten(1, (HEADS, -1)).transpose(0, 1))
    return made


def prompts() -> list[Tensor]:
    """Values of one head of every third layer."""
    return [layer.values[:1] for _, layer in real_layers((400,), torch.float32)]
