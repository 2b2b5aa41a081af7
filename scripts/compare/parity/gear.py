"""GEAR's simulated compression of a prompt's keys and values: what attention reads of them.

With as many tokens as a token has channels in all heads, where the released number of outliers of a channel is the
share of its tokens. The released code rounds to float16 in between, and starts its iteration at random: both are
replaced, by float32 and by kvbench's start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from kvbench.methods.gear.low_rank import _start
from kvbench.methods.gear.sequence import GearSequence, KeyPart, Recipe, ValuePart
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import real_layers

HEADS, HEAD_DIM = 3, 64
N = HEADS * HEAD_DIM
RECIPES = [Recipe(*recipe) for recipe in product((2, 4), (64, None), (0.0, 0.02), (2, 4))]


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for source, layers in (("random", random_layers()), ("SmolLM2-135M", prompts())):
        rows = {
            name: Agreement(project, version, name, "GEAR", "float32", source, "restored numbers")
            for name in ("gearslkivi_channelQ_new", "gearslkivi_tokenQ_new")
        }
        for (number, pair), recipe in product(enumerate(layers), RECIPES):
            for (name, row), kind, x in zip(rows.items(), (KeyPart, ValuePart), pair, strict=True):
                ours = GearSequence(x, kind, recipe, recipe, 64).read()
                group = recipe.group or (N if kind is KeyPart else HEADS * HEAD_DIM)
                with in_float32_from(_start(HEAD_DIM, recipe.rank, x.device)):
                    theirs = getattr(module, name)(x[None], recipe.bits, group, recipe.outliers, recipe.rank, 3)[0]
                row.near(ours, theirs, x.abs().amax(), f"{source}, tensors {number}, {recipe}")
        yield from rows.values()


@contextmanager
def in_float32_from(start: Tensor) -> Iterator[None]:
    """Numbers stay in float32, and random ones are `start`, or zeros where it does not fit."""
    originals = torch.rand, torch.Tensor.half

    def rand(*size: int) -> Tensor:
        return start.expand(size) if size[-2:] == start.shape else torch.zeros(size)

    torch.rand, torch.Tensor.half = rand, torch.Tensor.float
    try:
        yield
    finally:
        torch.rand, torch.Tensor.half = originals


def random_layers() -> list[tuple[Tensor, Tensor]]:
    """Keys with a few large channels, and values."""
    made = []
    for seed in range(6):
        keys, values = torch.randn(2, HEADS, N, HEAD_DIM, generator=torch.Generator().manual_seed(seed))
        keys[..., seed::17] *= 8
        made.append((keys, values))
    return made


def prompts() -> list[tuple[Tensor, Tensor]]:
    return [(layer.keys[:, :N], layer.values[:, :N]) for _, layer in real_layers((400,), torch.float32)]
