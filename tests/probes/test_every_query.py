"""Probes of every query in models whose heads have sinks, or whose logits have a cap, against transformers' weights."""

import pytest
import torch
from torch.testing import assert_close

from kvbench import probes
from kvbench.evaluation.probes import observe
from kvbench.models.layer_kinds import compressed_layers, kinds_at
from kvbench.probes.base import Observation
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt

N = 150  # more than a tile


def mean_weights(family: str) -> list[torch.Tensor]:
    """Transformers' attention in each layer of full attention, mean over heads: [N, N]."""
    model = sliding_model(family, implementation="eager")
    with torch.no_grad():
        weights = model(prompt(N)[None], output_attentions=True).attentions
    return [weights[place][0].double().mean(dim=0) for place in compressed_layers(kinds_at(model.config, N))]


@pytest.mark.parametrize("family", ["gpt_oss", "gemma2"])
def test_probes_of_every_query_have_the_sinks_and_caps_of_the_model(family):
    chosen = {"map": probes.AttentionMap(bins=5, answer=False), "tokens": probes.LazyTokens(3, 9, N, answer=False)}
    seen = observe(sliding_model(family), prompt(N), N, [Observation(name, p, "{}") for name, p in chosen.items()])
    back = torch.arange(N)[:, None] - torch.arange(N)
    near = (back < 9) | (torch.arange(N) < 3)
    for weights, in_map, by_token in zip(mean_weights(family), *seen, strict=True):
        parts = torch.arange(N).tensor_split(5)
        plain = [[weights[rows][:, keys].sum(dim=-1).mean().item() for keys in parts] for rows in parts]
        assert_close(torch.tensor(in_map), torch.tensor(plain), atol=2e-5, rtol=2e-4)
        assert_close(torch.tensor(by_token), (weights * near).sum(dim=-1).float(), atol=2e-5, rtol=2e-4)
