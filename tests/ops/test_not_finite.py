"""A number that is NaN or infinite is no ordinary number in any format: docs/methods.md says what becomes of it."""

from dataclasses import replace

import pytest
import torch

from kvbench.methods import GEAR, KVTC, Fp8, FullKV, Ggml, Kivi, KVQuant, Microscaling, Palu, Storage, TurboQuant
from kvbench.ops.formats import GGML, MICROSCALING
from tests.support.config import quantising
from tests.support.every_method import HEAD_DIM, state

N, TOKEN = 150, 50
STORAGES = {
    **{name: Ggml(name, name) for name in GGML},
    **{name: Microscaling(name, name) for name in MICROSCALING},
    **{f"fp8_{scale}": Fp8(scale) for scale in ("unit", "head", "token", "channel")},
    "turboquant": TurboQuant(),
    "turboquant_uniform": TurboQuant(keys="fp8", values="uniform"),
    "kivi": Kivi(residual=32),
    "gear": GEAR(),
    "kvquant": KVQuant(),
    "kvtc": KVTC(recent=8),
    "palu": Palu(),
}
STORAGES |= quantising(but=STORAGES.values())


def answer(storage: Storage, side: str, number: float) -> torch.Tensor:
    """Attention over a prompt with `number` in one key or value of its first head: [heads, head_dim]."""
    layer = state(N).layers[0]
    rows = getattr(layer, side).clone()
    rows[0, TOKEN, 3] = number
    cache = FullKV(storage).compress_layer(replace(layer, **{side: rows}), 0, 4, N)
    query, new = (torch.ones(1, heads, 1, HEAD_DIM) for heads in (6, 2))
    cache.update(new, new)
    return cache.attend(query, HEAD_DIM**-0.5)[0, :, 0]


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("side", ["keys", "values"])
@pytest.mark.parametrize("name", STORAGES)
def test_an_answer_over_it_is_not_finite(name, side, number):
    assert answer(STORAGES[name], side, 1.0).isfinite().all()
    assert not answer(STORAGES[name], side, number)[:3].isfinite().all()


@pytest.mark.parametrize("name", [name for name in MICROSCALING if name.startswith("mx")])
def test_mx_blocks_with_nan_have_the_scale_that_the_specification_gives_them(name):
    form = MICROSCALING[name]
    rows = torch.ones(2, 64)
    rows[1, 40] = float("nan")
    stored = form.encode(rows).unflatten(-1, (-1, form.block_bytes))
    assert (stored[..., 0] == 255).tolist() == [[False, False], [False, True]]
    assert form.decode(stored.flatten(1)).isnan().sum(dim=1).tolist() == [0, 32]
