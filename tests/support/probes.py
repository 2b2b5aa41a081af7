"""Probes of a tiny model."""

import torch
from torch.testing import assert_close

from kvbench.evaluation.probes import observe
from kvbench.probes.base import Observation
from tests.support.tiny import FAMILIES, LAYOUTS, prompt, tiny_model

N = 41


CASES = [(family, "gqa") for family in FAMILIES] + [("llama", layout) for layout in LAYOUTS if layout != "gqa"]


def seen(probe, family="llama", layout="gqa", n=N, before=None) -> list[torch.Tensor]:
    """The probe's values of each layer of a tiny model, as a run would store them."""
    (values,) = observe(tiny_model(family, layout), prompt(n), before or n, [Observation("probe", probe, "{}")])
    return [torch.tensor(of_layer, dtype=torch.float64) for of_layer in values]


def same(ours: list[torch.Tensor], plain: list[torch.Tensor]) -> None:
    """Equal within the stored digits, and different from layer to layer."""
    assert len(ours) == len(plain) == 3
    for a, b in zip(ours, plain, strict=True):
        assert_close(a, b, atol=2e-5, rtol=2e-4)
    assert not torch.allclose(ours[0], ours[1], atol=1e-3)


def attentions(family: str, layout: str, n: int = N) -> list[torch.Tensor]:
    """Softmax attention of each layer by transformers' eager code: [heads, n, n]."""
    with torch.no_grad():
        out = tiny_model(family, layout, implementation="eager")(prompt(n)[None], output_attentions=True)
    return [layer[0].double() for layer in out.attentions]


PROBING = [f"simlayerkv_fig{n}" for n in (2, 4, 7)] + [f"spindlekv_fig{n}" for n in (3, 7, 8)]


PROBING += ["pyramidkv_fig2", "pooling_merge_fig5"]
