"""A CompressedCache that belongs to another model, that an interrupt left behind, or that is to be saved."""

import copy
import pickle

import pytest
import torch

import kvbench
from kvbench.errors import UserError
from kvbench.integrations.generate import CompressedCache
from kvbench.models.cache_argument import as_argument
from tests.support.hybrids import hybrid_model
from tests.support.latents import made
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt, tiny_model

LONG = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
ANOTHER = r"made for another model, LlamaForCausalLM, than .*: make one for it$"


def generate(model, ids=None, **options) -> list[int]:
    ids = (prompt(60) if ids is None else ids)[None]
    return model.generate(ids, attention_mask=torch.ones_like(ids), **LONG | options)[0].tolist()


def test_a_cache_is_refused_by_another_model_in_a_block():
    model, other = (tiny_model(implementation="sdpa") for _ in range(2))
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        generate(model)
        with pytest.raises(UserError, match="attention is not kvbench's"):
            generate(other, prompt(70), past_key_values=compression.cache)
        with kvbench.compress(other, "full"), pytest.raises(UserError, match=ANOTHER):
            generate(other, prompt(70), past_key_values=compression.cache)


def test_models_of_one_configuration_are_two_models():
    """A cache was known by its model's configuration, which `from_config` shares."""
    model = tiny_model()
    other = type(model)(model.config)
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        generate(model)
    with kvbench.compress(other, "full"), pytest.raises(UserError, match=ANOTHER):
        generate(other, prompt(70), past_key_values=compression.cache)


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("layout", ["gqa", "mha"])
def test_a_cache_is_refused_by_another_model_outside_a_block(layout, read):
    """The other model's tokens were mixed into it, or an operator of torch failed."""
    cache = CompressedCache(tiny_model(), "full")
    if read:
        model = tiny_model()
        cache = CompressedCache(model, "full")
        generate(model, past_key_values=cache)
    with pytest.raises(UserError, match=ANOTHER):
        generate(tiny_model(layout=layout), prompt(70), past_key_values=cache)


def test_a_cache_does_not_go_on_in_another_dtype():
    model = tiny_model()
    cache = CompressedCache(model, "full")
    generate(model, past_key_values=cache)
    with pytest.raises(UserError, match="keys and values have other shapes or another dtype"):
        generate(model.bfloat16(), prompt(70), past_key_values=cache)


def test_a_cache_of_latents_is_refused_by_another_model():
    model, other = (made("deepseek_v3") for _ in range(2))
    cache = CompressedCache(model, "full")
    generate(model, past_key_values=cache)
    with pytest.raises(UserError, match="made for another model, DeepseekV3ForCausalLM, than"):
        generate(other, prompt(70), past_key_values=cache)


@pytest.mark.parametrize("interrupted", ["prompt", "answer"])
def test_a_pass_that_an_interrupt_ended_is_not_gone_on_with(interrupted):
    """Some layers had its tokens and others had not: the next answer came from both."""
    model, ids = tiny_model(), prompt(60)[None]
    cache = CompressedCache(model, "full")

    def interrupt(*_):
        raise KeyboardInterrupt

    if interrupted == "answer":
        model(input_ids=ids, **as_argument(model, cache))
    hook = model.model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(input_ids=ids if interrupted == "prompt" else ids[:, :1], **as_argument(model, cache))
    hook.remove()
    with pytest.raises(UserError, match=r"ended before its last layer, after an error or an interrupt: .* make a new"):
        model(input_ids=ids[:, :1], **as_argument(model, cache))


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy], ids=["pickle", "copy"])
def test_a_cache_that_cannot_be_saved_says_so(save):
    with pytest.raises(UserError, match=r"cannot be pickled: copy.deepcopy\(cache\) makes another"):
        save(CompressedCache(tiny_model(), "snapkv", budget=40))


LAYERS = [(tiny_model, "llama"), (sliding_model, "gemma3"), (made, "deepseek_v3"), (hybrid_model, "lfm2")]


@pytest.mark.parametrize(("make", "family"), LAYERS)
def test_tokens_outside_of_torchs_inference_mode_do_not_follow_those_within_it(make, family):
    """torch's own words named neither the cache nor a way out; the other order is allowed."""
    model = make(family)
    with kvbench.compress(model, "full") as compression:
        with torch.inference_mode():
            answer = torch.tensor(generate(model))
        with pytest.raises(UserError, match=r"under torch\.inference_mode\(\), and further ones come outside of it"):
            generate(model, torch.cat([answer, prompt(5)]), past_key_values=compression.cache)
        answer = torch.tensor(generate(model))
        with torch.inference_mode():
            generate(model, torch.cat([answer, prompt(5)]), past_key_values=compression.cache)
