"""Similarity of keys and values against a plain dense computation."""

import pytest
import torch
from torch.testing import assert_close

from kvbench import probes
from tests.support.probes import CASES, N, same, seen
from tests.support.tiny import prompt, random_layer, tiny_model


def projected(family: str, layout: str, kind: str) -> list[torch.Tensor]:
    """Keys before RoPE or values of each layer, as the model's own modules give them: [kv heads, N, head_dim]."""
    model, found = tiny_model(family, layout, implementation="eager"), []
    for layer in model.model.layers:
        module = getattr(layer.self_attn, "k_norm", None) if kind == "keys" else None
        module = module or getattr(layer.self_attn, "k_proj" if kind == "keys" else "v_proj")
        module.register_forward_hook(lambda _, __, out: found.append(out.reshape(N, -1, 8).transpose(0, 1).double()))
    with torch.no_grad():
        model(prompt(N)[None])
    return found


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    units = torch.nn.functional.normalize(vectors, dim=-1)
    return units @ units.transpose(-1, -2)


@pytest.mark.parametrize("of, theta", [("keys", 0.3), ("values", 0.5)])
@pytest.mark.parametrize("family, layout", CASES)
def test_similar_pairs_are_those_of_a_plain_count(family, layout, of, theta):
    plain = []
    for vectors in projected(family, layout, of):
        pairs = [cosine[a, b] > theta for cosine in cosines(vectors) for a in range(N) for b in range(a)]
        plain.append(torch.tensor(pairs).reshape(len(vectors), -1).double().mean(dim=1))
    same(seen(probes.SimilarPairs(of, theta), family, layout), plain)


@pytest.mark.parametrize("of", ["keys", "values"])
def test_the_nearest_vector_is_another_tokens(of):
    plain = []
    for vectors in projected("qwen3", "gqa", of):
        plain.append((cosines(vectors) - 3 * torch.eye(N)).amax(dim=-1).mean(dim=-1))
    same(seen(probes.NearestVector(of), "qwen3"), plain)


def test_similarity_crosses_tiles(monkeypatch):
    whole = [probe.observe(random_layer(n=90), 90) for probe in similarity_of_values()]
    monkeypatch.setattr("kvbench.probes.similarity.TILE", 7)
    tiled = [probe.observe(random_layer(n=90), 90) for probe in similarity_of_values()]
    assert_close(tiled, whole, atol=0, rtol=1e-12)


def similarity_of_values():
    return probes.SimilarPairs("values", 0.2), probes.NearestVector("values")
