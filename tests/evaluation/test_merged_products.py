"""Products of one input as one product: the same tokens, no weight twice, and only where nothing forbids it."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from transformers import AutoModelForCausalLM, GemmaConfig, Phi3Config

from kvbench.cache import packed
from kvbench.evaluation.fused_layers import OPTIONS, with_compiled_layers
from kvbench.evaluation.merged_products import OnlyOnce, PartOfProduct, groups
from kvbench.evaluation.recorded_steps import RecordedSteps, Recording
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.padded_attention import padded_attention
from kvbench.prefill import Needs, prefill
from tests.evaluation.test_fused_layers import STEPS, caches_of, compiled, decoded, texts
from tests.support.gpu_code import GpuCode
from tests.support.tiny import LAYOUTS, prompt, tiny_model

FAMILIES = {"gemma": GemmaConfig, "phi3": Phi3Config}
HEAD_DIM = 32  # so that biases, too, start where memory may


def model_of(family: str):
    if family not in FAMILIES:
        return tiny_model(family, num_layers=2, head_dim=HEAD_DIM)
    heads, kv_heads = LAYOUTS["gqa"]
    torch.manual_seed(0)
    config = FAMILIES[family](
        vocab_size=97,
        hidden_size=heads * HEAD_DIM,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        pad_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.35)
    return model


def merged(model) -> list[str]:
    """The maps of a model's first layer that are parts of a larger product."""
    modules = model.get_decoder().layers[0].named_modules()
    return [name.rpartition(".")[2] for name, module in modules if isinstance(module, PartOfProduct)]


def stored(*models) -> int:
    """Bytes of all storages that parameters lie in, each once."""
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for model in models for x in model.parameters()}
    return sum(storage.nbytes() for storage in storages.values())


ALL = ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]


@pytest.mark.parametrize(
    "family, names", [("llama", ALL), ("qwen2", ALL), ("qwen3", ALL), ("gemma", ALL), ("phi3", [])]
)
def test_maps_of_one_input_are_merged_and_no_weight_is_stored_twice(family, names):
    model = model_of(family)
    before, ids = stored(model), prompt(20)
    values = [parameter.clone() for parameter in model.parameters()]
    with torch.inference_mode():
        logits = prefill(model, ids, Needs()).logits
    first, second = with_compiled_layers(model), with_compiled_layers(model)
    assert merged(first) == merged(second) == names and not merged(model)
    assert stored(model, first, second) == before
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), values, strict=True))
    with torch.inference_mode():
        assert torch.equal(prefill(model, ids, Needs()).logits, logits)  # bit for bit


@pytest.mark.heavy
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "phi3"])
def test_merged_products_decode_the_tokens_of_eager_steps(family, monkeypatch):
    monkeypatch.setattr(packed, "packed_attention", padded_attention)
    torch._dynamo.reset()
    model, names = model_of(family).double(), ["full", "snapkv"]
    expected, found = decoded(model, names), compiled(model, names, CompileCounter())
    assert {row.engine for row in found} == {"fused"}
    assert texts(found) == texts(expected) and len(set(found[0].tokens)) > 3


class Adapted(nn.Linear):
    """A map with a low-rank adapter."""

    def forward(self, input):
        return super().forward(input) + 0.5 * input.sum(-1, keepdim=True)


def adapted(layer):
    layer.self_attn.k_proj.__class__ = Adapted


def hooked(layer):
    layer.self_attn.k_proj.register_forward_hook(lambda module, args, out: 2 * out)


def replaced(layer):
    module = layer.self_attn.k_proj
    module.forward = lambda input: 3 * nn.functional.linear(input, module.weight)


def biased(layer):
    layer.self_attn.k_proj.bias = nn.Parameter(torch.ones(layer.self_attn.k_proj.out_features))


def shared_storage(layer):
    """A slice of a larger tensor, which stays when the slice goes."""
    weight = layer.self_attn.k_proj.weight
    weight.data = torch.cat([weight.data, weight.data])[: len(weight)]


def classed(layer):
    """A weight whose class says what a product with it is, as quantised ones have."""

    class Weight(torch.Tensor):
        pass

    layer.self_attn.k_proj.weight = nn.Parameter(layer.self_attn.k_proj.weight.data.as_subclass(Weight))


REST = ["gate_proj", "up_proj"]
APART = ["q_proj", "v_proj", *REST]


@pytest.mark.parametrize(
    "change, names",
    [(adapted, APART), (hooked, APART), (replaced, APART), (biased, APART), (classed, APART), (shared_storage, REST)],
)
def test_a_map_that_is_more_than_a_product_stays_as_it_is(change, names):
    model = model_of("llama")
    change(model.model.layers[0])
    before = stored(model)
    other = with_compiled_layers(model)
    assert merged(other) == names
    assert stored(model, other) == before
    kept = other.model.layers[0].self_attn.k_proj
    assert type(kept) is type(model.model.layers[0].self_attn.k_proj) and kept.weight is not None


def test_maps_of_other_inputs_are_in_no_group():
    model = model_of("llama")
    names = {module: name.rpartition(".")[2] for name, module in model.named_modules()}
    found = [[names[module] for module in group] for group in groups(model)]
    assert found == [ALL[:3], ALL[3:]] * 2  # o_proj and down_proj are alone


@pytest.mark.heavy
@torch.inference_mode()
@pytest.mark.parametrize("once, products", [(True, 4), (False, 7)])
def test_a_merged_product_is_computed_once_in_inductors_code(once, products, monkeypatch):
    monkeypatch.setitem(OPTIONS, "joint_custom_pre_pass", OnlyOnce() if once else None)
    torch._dynamo.reset()
    model, made = model_of("llama").bfloat16(), GpuCode()
    cache, logits = caches_of(model, ["full"])
    steps = RecordedSteps(model, cache, Recording(lambda work: work, with_compiled_layers(model, backend=made)))
    for _ in range(2):  # the second one compiles
        steps(logits.argmax(dim=-1), STEPS)
    (kernels,) = made.kernels()
    assert kernels["mm"] == products, kernels
