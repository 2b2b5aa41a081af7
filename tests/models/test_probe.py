"""Whether a layer rotates its keys is found out from the model, and methods that rotate keys follow it."""

import sys
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.methods.key_rerotation import closed_up
from kvbench.models import reads_alike
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.probe import counts_positions, manifest_fields, ropes_of
from kvbench.ops.rope import fixed_rotation, text_decoder
from kvbench.prefill import Needs, prefill
from scripts.results.tiny_models.outcome import taking_attention
from tests.support.config import method
from tests.support.fake_devices import FakeDevices, place
from tests.support.hybrids import SHAPE
from tests.support.latents import made
from tests.support.tiny import prompt, tiny_model

FULL, SLIDING = "full_attention", "sliding_attention"
N, BUDGET = 60, 36
WINDOWED = {"layer_types": [SLIDING, SLIDING, FULL] * 2, "num_hidden_layers": 6, "sliding_window": 12}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARED = EXPERTS | {"num_local_experts": 4, "shared_expert_intermediate_size": 16}
GROUPED = {"n_group": 1, "topk_group": 1}
# model_type, and what differs from SHAPE: families of which some layers have no rotation, or another one
FAMILIES: dict[str, dict[str, Any]] = {
    "afmoe": WINDOWED | EXPERTS | {"num_dense_layers": 1, "num_shared_experts": 1},
    "beam": SHARED | {"num_hidden_layers": 6, "num_experts": 16},
    "cohere2": WINDOWED,
    "cohere2_moe": WINDOWED | EXPERTS,
    "exaone4": WINDOWED,
    "exaone_moe": WINDOWED | EXPERTS | GROUPED,
    "flint": SHARED | {"num_hidden_layers": 6},
    "granite_swa": {"num_hidden_layers": 3, "layer_rope_theta": [10000.0, 500.0, 0.0]},
    "kolibri1": SHARED | {"num_hidden_layers": 6},
    "smollm3": {"num_hidden_layers": 4},
    "gemma3_text": WINDOWED,
}
MIXED = "smollm3"  # rotated and unrotated layers that methods compress


def tiny(family: str, implementation: str = ATTENTION):
    """A random model, weights of norms included: what a layer does behind its rotation shows."""
    config = AutoConfig.for_model(family, **SHAPE | FAMILIES.get(family, {"num_hidden_layers": 2}))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


class Rotated(NamedTuple):
    """The keys that a layer's own code hands to its rotation [heads, n, head_dim], and what it gets back."""

    before: Tensor
    after: Tensor


def by_the_models_own_code(model, ids, monkeypatch) -> dict[int, Rotated]:
    """By layer, the keys before and after `apply_rotary_pos_emb`, which a layer without rotation does not call."""
    modeling, found, at = sys.modules[type(text_decoder(model)).__module__], {}, []
    original = modeling.apply_rotary_pos_emb

    def noting(q, k, *args, **kwargs):
        out = original(q, k, *args, **kwargs)
        found[at[-1]] = Rotated(k[0], out[1][0])
        return out

    hooks = [
        layer.register_forward_pre_hook(lambda *_, index=index: at.append(index))
        for index, layer in enumerate(text_decoder(model).layers)
    ]
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(modeling, "apply_rotary_pos_emb", noting)
        model(input_ids=ids[None])
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("family", [family for family in FAMILIES if family in CONFIG_MAPPING])
def test_each_layers_rotation_is_what_its_own_code_does(family, monkeypatch):
    """AFMoE's, Cohere2-MoE's, EXAONE-MoE's and Granite-SWA's keys were rotated back by rotations that are not there."""
    truth = by_the_models_own_code(tiny(family, "eager"), prompt(N), monkeypatch)
    ropes = ropes_of(model := tiny(family))
    assert [at for at, rope in enumerate(ropes) if not rope.still] == sorted(truth)
    still = [at for at in range(len(ropes)) if at not in truth]
    said = manifest_fields(model)
    assert said.pop("reads_alike") < 1e-5
    assert said == ({"unrotated_layers": still} if still else {})
    for at, (before, after) in truth.items():
        back = fixed_rotation(ropes[at], "a test").rotate(after, -torch.arange(N))
        torch.testing.assert_close(back, before, rtol=0, atol=1e-4 * before.abs().max().item())


def test_dropout_of_a_model_in_training_mode_is_no_other_rotation():
    """Keys of two passes differed, and the model was refused by methods that rotate keys, also after model.eval()."""
    shape = SHAPE | {"num_hidden_layers": 2, "resid_pdrop": 0.3, "embd_pdrop": 0.3}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("phi3", **shape), attn_implementation=ATTENTION)
    model.train()
    model.lm_head.eval()
    assert not any(rope.varies for rope in ropes_of(model)) and not counts_positions(model)
    assert model.training and model.model.training and not model.lm_head.training


def test_a_layer_that_changes_its_keys_after_rotating_them_says_so():
    """Hunyuan normalises rotated keys: rotating them back does not give the same key at every position."""
    model = tiny("hunyuan_v1_dense")
    state = prefill(model, prompt(N), Needs())
    with pytest.raises(UserError, match=r"also depends on more than its rotary embedding \(layer 1\)$"):
        fixed_rotation(state.layers[1].rope, "a test")
    assert len(method("snapkv").compress(prefill(model, prompt(N), method("snapkv").needs), BUDGET)) == 2


def test_a_model_that_does_something_else_with_its_caches_is_one_line(monkeypatch):
    """A cache layer has no shape, by which latents are expanded."""
    monkeypatch.setattr(reads_alike, "cache_layers", lambda kinds, make: [make() for _ in kinds])
    with pytest.raises(UserError, match="DeepseekV3ForCausalLM does not work with kvbench's attention"):
        prefill(made("deepseek_v3"), prompt(N), Needs())


def test_a_model_that_fails_far_into_a_text_is_one_line(monkeypatch):
    def fails(*args: object, **options: object) -> None:
        raise ValueError("no such position")

    monkeypatch.setattr("kvbench.models.probe.read", fails)
    with pytest.raises(UserError, match="reading 1 token ends with ValueError: no such position"):
        ropes_of(tiny_model())


def test_methods_that_rotate_keys_run_where_only_some_layers_do():
    model = tiny(MIXED)
    rolling = method("streaming_llm", "method.streaming_llm.decode=evict", "method.streaming_llm.rope=rolling")
    for name in ("spindle", "triattention", "expected_attention", "kvquant_4", "xkv", "key_rerotation"):
        chosen = method(name)
        state = prefill(model, prompt(N), chosen.needs)
        caches = chosen.compress(state, BUDGET)
        assert len(generate(model, caches, state.logits, 8, frozenset()).tokens) == 8, name
    caches = rolling.compress(prefill(model, prompt(N), rolling.needs), BUDGET)
    still = [cache.rope.still for cache in caches]
    assert still == [False, False, False, True]


def test_keys_without_a_rotation_are_stored_as_they_are():
    """Re-rotating to the cache's own positions moved keys that carry no position."""
    model, kept = tiny(MIXED), torch.tensor([[1, 7, 9, 30]] * 2)
    layers = prefill(model, prompt(N), Needs()).layers
    for layer in layers:
        keys = layer.keys.gather(1, kept[..., None].expand(-1, -1, layer.keys.shape[2]))
        moved = closed_up(keys, kept, layer.n, layer.rope)
        assert torch.equal(moved, keys) == (layer.index in manifest_fields(model)["unrotated_layers"])


@pytest.mark.parametrize("family, counts", [("bart", True), ("gpt2", False), ("smollm3", False), ("qwen3_next", False)])
def test_a_model_that_counts_positions_by_its_cache_is_not_recorded(family, counts):
    """A recorded step would give every token the position of the first: seen on a GPU as wrong tokens."""
    model = taking_attention(family)
    assert counts_positions(model) is counts
    with FakeDevices():
        place(model, 1)
        assert (recording_of("auto", model) is None) is counts
        if counts:
            with pytest.raises(UserError, match="this model takes a token's position from"):
                recording_of("graph", model)
