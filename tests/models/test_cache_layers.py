"""Layers that an older transformers does not know are refused in one line."""

import pytest
from transformers import LlamaConfig

from kvbench.errors import UserError
from kvbench.models import cache_layers
from kvbench.models.layer_kinds import kinds_of


@pytest.mark.parametrize("kind", ["linear_attention", "conv", "mlp"])
def test_a_model_with_layers_that_transformers_has_no_cache_for_is_refused(kind, monkeypatch):
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["full_attention", kind]
    monkeypatch.setattr(cache_layers, "AVAILABLE", True)
    assert len(kinds_of(config)) == 2
    monkeypatch.setattr(cache_layers, "AVAILABLE", False)
    with pytest.raises(UserError, match=f"layers of '{kind}', whose caches transformers .* does not have: use a newer"):
        kinds_of(config)
    config.layer_types = ["full_attention"] * 2
    assert len(kinds_of(config)) == 2
