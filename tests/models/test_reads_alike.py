"""A model that does not read with kvbench's attention what it reads with its own is refused when it is loaded."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from kvbench.errors import UserError
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.layer_kinds import kinds_of
from kvbench.models.probe import ropes_of
from kvbench.models.reads_alike import PROBE, check_reads_alike, deepest
from kvbench.ops.rope import text_decoder
from kvbench.prefill import Needs, prefill
from tests.support.hybrids import FAMILIES, SHAPE, hybrid_model
from tests.support.tiny import prompt, tiny_model


def random_model(model_type: str, implementation: str = ATTENTION, **more):
    config = AutoConfig.for_model(model_type, **SHAPE | {"num_hidden_layers": 2, "n_layer": 2, "n_head": 6} | more)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_kvbench_reads_are_read_alike(family, dtype):
    model = hybrid_model(family).to(dtype)
    check_reads_alike(model, kinds_of(model.config))
    assert model.config._attn_implementation == ATTENTION


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_in_both_directions_is_refused(dtype):
    """BERT answered with other tokens than its own, silently."""
    model = random_model("bert").to(dtype)
    with pytest.raises(UserError, match=r"^BertLMHeadModel attends to later tokens \(layer 0\)"):
        prefill(model, prompt(9), Needs())


def test_hidden_states_that_differ_are_refused():
    """Attention that a layer scales behind the registered function, say."""
    model = tiny_model()
    attention = model.model.layers[0].self_attn
    attention.register_forward_hook(
        lambda module, _, out: (out[0] * (1.01 if module.config._attn_implementation == "eager" else 1), *out[1:])
    )
    with pytest.raises(
        UserError, match=r"^LlamaForCausalLM reads something else .* of 6 tokens differ by \d+\.\d%; engine"
    ):
        check_reads_alike(model, kinds_of(model.config))


def test_hidden_states_that_are_not_finite_are_told_as_such():
    """The line said that they differ from those of the model's own attention, by nan%."""
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"hidden states that are not finite, .* or it overflows in float32$"):
        check_reads_alike(model, kinds_of(model.config))


def test_a_model_that_keeps_states_in_its_own_modules_is_refused():
    """A second setting of RecurrentGemma went on from the states at the end of the first one's answer."""
    model = random_model("recurrent_gemma", num_hidden_layers=3, lru_width=48, attention_window_size=16)
    with pytest.raises(UserError, match=r"^RecurrentGemmaForCausalLM keeps the states of a text in its own modules"):
        ropes_of(model)


def test_code_that_attends_by_itself_is_refused():
    """Bloom ended in an AttributeError of the cache layer."""
    with pytest.raises(
        UserError,
        match=r"^BloomForCausalLM does not work with kvbench's attention and caches: reading 6 tokens ends with",
    ):
        ropes_of(random_model("bloom"))


def test_a_window_that_the_models_code_does_not_apply_is_refused():
    """Moshi's has one by its configuration, and attends to everything."""
    model = tiny_model("mistral")
    model.config.sliding_window = 12
    assert [layer.self_attn.config.sliding_window for layer in model.model.layers] == [12] * 3
    check_reads_alike(model, kinds_of(model.config))
    kinds = kinds_of(model.config)
    model.config.sliding_window = None
    with pytest.raises(UserError, match=r"has a window of 12 tokens in layer 0 by its configuration, which its code"):
        check_reads_alike(model, kinds)


def test_a_model_that_leaves_layers_out_is_refused(monkeypatch):
    """Layers that attend to an image are not run where there is none (Mllama of transformers 5.2)."""
    model = tiny_model()
    other = type(model.model.layers[1])(model.config, 1)  # of another kind than those below it: it would be the deepest
    other.extra = nn.Identity()
    other.forward = lambda hidden, *_, **__: hidden
    layers = [*model.model.layers]
    model.model.layers = nn.ModuleList([layers[0], layers[1], other])
    monkeypatch.setattr(other, "_call_impl", lambda hidden, *_, **__: hidden)  # no hook runs
    with pytest.raises(UserError, match=r"^LlamaForCausalLM skips layers if there is only text"):
        check_reads_alike(model, kinds_of(model.config))


def test_a_model_that_uses_no_cache_is_refused(monkeypatch):
    model = tiny_model()
    for layer in model.model.layers:
        forward = layer.self_attn.forward
        monkeypatch.setattr(layer.self_attn, "forward", lambda hidden_states, _=forward, **rest: (hidden_states, None))
    with pytest.raises(UserError, match="LlamaForCausalLM does not store keys and values in its caches"):
        check_reads_alike(model, kinds_of(model.config))


def test_an_error_of_the_models_code_is_one_line_and_leaves_the_model_as_it_was(monkeypatch):
    model = tiny_model().train()

    def fails(*args: object, **kwargs: object) -> None:
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr(model.model.layers[0].mlp, "forward", fails)
    with pytest.raises(UserError, match=r"reading 6 tokens ends with ValueError: first line \(engine=openai") as error:
        check_reads_alike(model, kinds_of(model.config))
    assert "\n" not in str(error.value)
    assert (model.config._attn_implementation, model.training) == (ATTENTION, True)
    assert not model.model.layers[0]._forward_hooks


@pytest.mark.parametrize(("family", "last"), [("llama", 0), ("lfm3", 2), ("nemotron_h", 3)])
def test_layers_above_the_first_of_each_kind_are_not_run(family, last):
    """The model's whole depth would take long where its weights lie in another memory."""
    model = tiny_model() if family == "llama" else hybrid_model(family)
    layers = next(part for part in text_decoder(model).modules() if isinstance(part, nn.ModuleList))
    ran = []
    for at, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, at=at: ran.append(at))
    check_reads_alike(model, kinds_of(model.config))
    assert deepest(model, kinds_of(model.config)) == (layers[max(ran)], True)
    assert sorted(set(ran)) == list(range(last + 1))
    assert len(ran) == 3 * (last + 1)


def test_the_probes_attention_is_not_left_behind():
    model = tiny_model(implementation=ATTENTION)
    ropes_of(model)
    assert PROBE not in {part.config._attn_implementation for part in model.modules() if hasattr(part, "config")}
