"""`kvbench.compress` beside other programs in one process, which change attention functions, hook layers or compile."""

import copy

import pytest
import torch
from transformers import CompileConfig, GenerationConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import kvbench
from kvbench.errors import UserError
from kvbench.integrations.generate import CompressedCache
from kvbench.models.cache_argument import name_of
from tests.support.tiny import prompt, tiny_model

LONG = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


def generate(model, **options) -> list[int]:
    ids = prompt(60)[None]
    return model.generate(ids, attention_mask=torch.ones_like(ids), **LONG | options)[0, 60:].tolist()


@pytest.fixture
def wrapped_functions():
    """Every attention function wrapped in one that reads tensors, as importing kvpress leaves them."""

    def reading_tensors(function):
        def wrapper(module, query, key, *args, **kwargs):
            assert query.shape[-1] == key.shape[-1]
            return function(module, query, key, *args, **kwargs)

        return wrapper

    before = dict(ALL_ATTENTION_FUNCTIONS.items())
    ALL_ATTENTION_FUNCTIONS.update({name: reading_tensors(function) for name, function in before.items()})
    yield
    for name in before:
        del ALL_ATTENTION_FUNCTIONS[name]


@pytest.mark.usefixtures("wrapped_functions")
def test_attention_functions_that_another_program_wraps_do_not_reach_compressed_caches():
    """After `import kvpress` every block was refused, as if the model did not work with kvbench."""
    model = tiny_model(implementation="sdpa")
    expected = generate(model)
    with kvbench.compress(model, "full"):
        assert generate(model) == expected
    model.set_attn_implementation("kvbench")
    assert generate(model, past_key_values=CompressedCache(model, "full")) == expected


def test_a_hook_that_reads_keys_of_a_compressed_cache_is_one_line():
    """As presses of kvpress do in a block; it was an AttributeError of None."""
    model = tiny_model(implementation="sdpa")

    def press(module, args, kwargs, output):
        return kwargs[name_of(module)].layers[module.layer_idx].keys.norm(dim=-1)

    hook = model.model.layers[0].self_attn
    with kvbench.compress(model, "full"), pytest.raises(UserError, match="reads the keys and values of a Compressed"):
        hook.register_forward_hook(press, with_kwargs=True)
        generate(model)


def compile_part(model, part: str, backend) -> None:
    decoder = model.model
    if part == "model":
        model.compile(backend=backend)
    elif part == "layer":
        decoder.layers[0].compile(backend=backend)
    elif part == "forward":
        model.forward = torch.compile(model.forward, backend=backend)
    else:
        model.model = torch.compile(decoder, backend=backend)


def test_a_press_that_was_entered_before_the_block_is_told_as_the_reason():
    """The line said that the model does not work with its own attention."""
    model = tiny_model(implementation="sdpa")

    def press(module, args, kwargs, output):
        layer = kwargs["past_key_values"].layers[module.layer_idx]
        layer.keys, layer.values = layer.keys[:, :, 1:], layer.values[:, :, 1:]

    hook = model.model.layers[0].self_attn.register_forward_hook(press, with_kwargs=True)
    with (
        pytest.raises(UserError, match=r"forward hooks of tests \(a press of kvpress"),
        kvbench.compress(model, "full"),
    ):
        pytest.fail("the block ran")
    hook.remove()
    with kvbench.compress(model, "full"):
        assert len(generate(model)) == 6


@pytest.mark.parametrize("part", ["model", "layer", "forward", "decoder"])
def test_a_model_that_was_compiled_in_place_runs_uncompiled_in_a_block(part):
    """Tracing a layer cache ended in an error of torch's compiler; a compiled decoder seemed to be another model's."""
    model, compiled = (tiny_model(implementation="sdpa") for _ in range(2))
    calls = []

    def counting(graph, _):
        calls.append(graph)
        return graph.forward

    compile_part(compiled, part, counting)
    with kvbench.compress(model, "h2o", budget=20):
        expected = generate(model)
    with kvbench.compress(compiled, "h2o", budget=20):
        assert generate(compiled) == expected and not calls
    generate(compiled)
    assert calls
    compiled.set_attn_implementation("kvbench")
    with pytest.raises(UserError, match=r"LlamaForCausalLM was compiled in place .* use `with kvbench.compress"):
        CompressedCache(compiled, "full")


def test_generate_compiles_nothing_for_a_static_cache_in_a_block():
    """It traced every layer cache, in a hundred frames; by itself it compiles on a GPU alone."""
    torch._dynamo.reset()  # what other tests have compiled counts for the limit of a function that all models share
    model, calls = tiny_model(implementation="sdpa"), []
    everywhere = CompileConfig(
        fullgraph=False, mode=None, backend=lambda graph, _: calls.append(graph) or graph.forward
    )
    everywhere._compile_all_devices = True
    with kvbench.compress(model, "h2o", budget=20):
        expected = generate(model)
        assert generate(model, cache_implementation="static", compile_config=everywhere) == expected
        own = GenerationConfig(cache_implementation="static", compile_config=everywhere, max_new_tokens=8)
        model.generate(torch.arange(1, 40)[None], generation_config=own)
    assert not calls
    model.set_attn_implementation("eager")
    generate(model, cache_implementation="static", compile_config=everywhere)
    assert calls


def test_a_model_that_was_compiled_under_another_name_runs_uncompiled_in_a_block():
    """Dynamo traced the hook and every layer cache, with warnings, or ended in an error under fullgraph=True."""
    torch._dynamo.reset()  # as above
    model, calls, ids = tiny_model(implementation="sdpa"), [], prompt(40)[None]
    compiled = torch.compile(model, backend=lambda graph, _: calls.append(graph) or graph.forward)
    with kvbench.compress(model, "h2o", budget=20) as compression:
        expected = model(ids).logits
        assert torch.equal(compiled(ids).logits, expected) and not calls and len(compression.caches) == 2
    compiled(ids)
    assert calls


def test_what_is_copied_or_saved_in_a_block_compiles_as_before(tmp_path):
    """Its generation configuration had disable_compile for ever."""
    model = tiny_model(implementation="sdpa")
    with kvbench.compress(model, "full"):
        copied = copy.deepcopy(model)
        model.save_pretrained(tmp_path)
    assert GenerationConfig.from_pretrained(tmp_path).disable_compile is None
    assert copied.generation_config.disable_compile is None and copied._compiled_call_impl is None


@pytest.mark.parametrize("name, amount", [("spindle", {"ratio": 0.9}), ("fp8_token", {})])
def test_autocast_changes_nothing_of_a_method(name, amount):
    """Scores and codes were rounded to 16 bits, or torch had no such operator."""
    model = tiny_model(implementation="sdpa").bfloat16()
    answers = []
    for enabled in (False, True):
        with kvbench.compress(model, name, **amount) as compression, torch.autocast("cpu", torch.bfloat16, enabled):
            answers.append((generate(model), compression.cache.ratio))
    assert answers[0] == answers[1]


def test_autocast_that_parts_the_dtypes_of_keys_and_values_is_one_line():
    """FullKV had 1.33 times its own bytes in 16 bits."""
    model = tiny_model(implementation="sdpa")
    refused = pytest.raises(UserError, match=r"keys of torch.float32 and values of torch.bfloat16.* model.to\(torch.bf")
    with kvbench.compress(model, "full"), torch.autocast("cpu", torch.bfloat16), refused:
        generate(model)


@pytest.mark.parametrize("asked", ["generate", "forward", "config"])
def test_attention_weights_are_refused_where_they_would_be_empty(asked):
    model = tiny_model(implementation="eager")
    model.config.output_attentions = asked == "config"
    refused = pytest.raises(UserError, match="output_attentions=True: attention over a compressed cache has no weights")
    with refused, kvbench.compress(model, "full"):
        if asked == "generate":
            generate(model, output_attentions=True, return_dict_in_generate=True)
        model(input_ids=prompt(20)[None], **({"output_attentions": True} if asked == "forward" else {}))


def test_a_copy_that_is_made_in_a_block_is_an_ordinary_model_after_it():
    """It read its prompts into caches of the original, and refused them."""
    model = tiny_model(implementation="sdpa")
    expected = generate(model)
    with kvbench.compress(model, "h2o", budget=20) as compression:
        copied = copy.deepcopy(model)
        with pytest.raises(UserError, match="this pass has no cache of one"):
            generate(copied)
    copied.set_attn_implementation("sdpa")
    assert generate(copied) == expected and not compression.caches
    with kvbench.compress(copied, "full") as compression:
        assert generate(copied) == expected and len(compression.caches) == 1


def test_gradient_checkpointing_in_training_mode_is_told_as_the_reason():
    """The line said to run the pass in a block, in which it was."""
    model = tiny_model(implementation="sdpa").train()
    model.gradient_checkpointing_enable()
    refused = pytest.raises(UserError, match=r"with gradient checkpointing, a model in training mode .* model.eval\(\)")
    with kvbench.compress(model, "full"):
        with refused:
            model(prompt(40)[None])
        if (
            name_of(model) == "past_key_values"
        ):  # from transformers 5.24 on the cache stays where there are no gradients
            with refused:
                generate(model)
        model.eval()
        assert len(generate(model)) == 6
