"""Lazy layers and tokens against a plain dense computation."""

import pytest
import torch

from kvbench import probes
from kvbench.methods import SimLayerKV
from tests.support.probes import CASES, N, attentions, same, seen
from tests.support.tiny import random_layer


@pytest.mark.parametrize("family, layout", CASES)
def test_lazy_mass_of_the_prompt_is_the_attention_to_sinks_and_recents(family, layout):
    plain = [a[:, -5:, [*range(3), *range(N - 9, N)]].sum(dim=-1).mean(dim=-1) for a in attentions(family, layout)]
    same(seen(probes.LazyMass(sinks=3, window=9, w_last=5), family, layout), plain)


def test_lazy_mass_is_what_simlayerkv_decides_by():
    layer = random_layer(n=60)
    method = SimLayerKV(sinks=2, window=10, w_last=4)
    mass = probes.LazyMass(sinks=2, window=10, w_last=4).observe(layer, 60)
    assert mass.mean().item() == pytest.approx(method.score(layer).item())


def test_lazy_mass_is_of_the_papers_tokens_unless_others_are_asked_for():
    assert probes.LazyMass() == probes.LazyMass("prefill", sinks=4, window=1024, w_last=32, delta=None)


def test_lazy_mass_of_decoding_is_the_first_answered_tokens():
    plain = [a[:, 30, [*range(3), *range(22, 31)]].sum(dim=-1) for a in attentions("llama", "gqa")]
    same(seen(probes.LazyMass("decode", sinks=3, window=9), before=30), plain)


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("bins", [7, 99])
def test_lazy_tokens_have_recents_of_their_own_in_even_stretches(family, layout, bins):
    plain = []
    for attention in attentions(family, layout):
        mass = torch.stack(
            [attention[:, i, sorted({*range(min(i + 1, 3)), *range(max(0, i - 8), i + 1)})].sum() for i in range(N)]
        ) / len(attention)
        stretches = [part.mean() for part in mass[:30].tensor_split(min(bins, 30))]
        plain.append(torch.cat([torch.stack(stretches), mass[30:]]))
    same(seen(probes.LazyTokens(sinks=3, window=9, bins=bins), family, layout, before=30), plain)
