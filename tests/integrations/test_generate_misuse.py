"""What `kvbench.compress` cannot do is one line: padding, nested blocks, chunks, other models, wrong types."""

import re
import threading

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    CLIPVisionConfig,
    DynamicCache,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

import kvbench
from kvbench.errors import UserError
from kvbench.integrations.generate import CompressedCache, setting_of
from kvbench.methods import Dense, Eviction
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt, tiny_model

STATED = [f"method.attention_matching.storage.{key}=4" for key in ("sinks", "recent")]
LONG = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def model():
    return tiny_model(implementation="sdpa")


def generate(model, ids=None, mask=None, **options) -> list[int]:
    ids = prompt(60) if ids is None else ids
    mask = torch.ones_like(ids) if mask is None else mask
    return model.generate(ids[None], attention_mask=mask[None], **LONG | options)[0].tolist()


def test_a_padded_prompt_is_refused_and_the_model_stays_usable(model):
    mask = torch.ones(60, dtype=torch.long)
    mask[:5] = 0
    before = generate(model)
    with pytest.raises(UserError, match="attention_mask has zeros"), kvbench.compress(model, "snapkv", budget=40):
        generate(model, mask=mask)
    assert generate(model) == before


def test_a_padded_prompt_is_refused_without_a_block_too():
    ours = tiny_model()
    mask = torch.ones(60, dtype=torch.long)
    mask[0] = 0
    with pytest.raises(UserError, match="attention_mask has zeros"):
        generate(ours, mask=mask, past_key_values=CompressedCache(ours, "full"))


def test_a_mask_that_hides_tokens_from_others_is_refused_and_a_causal_one_is_not(model):
    """Of the prompt, where it was ignored, and of later tokens."""
    causal = torch.ones(20, 20, dtype=torch.bool).tril()[None, None]
    hidden = causal.clone()
    hidden[..., 12:, 3:6] = False
    with kvbench.compress(model, "full") as compression:
        with pytest.raises(UserError, match="an attention_mask of 4 dimensions hides tokens"):
            model(input_ids=prompt(20)[None], attention_mask=hidden)
        model(input_ids=prompt(20)[None], attention_mask=causal)
        later = torch.zeros(1, 1, 1, 21)
        later[..., 3:6] = float("-inf")
        with pytest.raises(UserError, match="an attention_mask of 4 dimensions"):
            model(input_ids=prompt(1)[None], attention_mask=later, past_key_values=compression.cache)


def test_keys_and_values_that_are_no_cache_are_refused(model):
    """They were dropped, and the model went on without its text."""
    pairs = ((torch.ones(1, 2, 9, 8), torch.ones(1, 2, 9, 8)),)
    refused = pytest.raises(UserError, match="past_key_values must be a cache of transformers, not tuple")
    with kvbench.compress(model, "full"), refused:
        model(input_ids=prompt(5)[None], past_key_values=pairs)


def test_gradients_are_refused_in_a_block(model):
    """They were those of a model without attention."""
    embedded = model.get_input_embeddings()(prompt(20)[None]).detach().requires_grad_()
    with kvbench.compress(model, "full"):
        logits = model(inputs_embeds=embedded).logits
        with pytest.raises(UserError, match="attention over a compressed cache has no gradients"):
            logits[0, -1].sum().backward()
    expected = model(inputs_embeds=embedded).logits
    torch.testing.assert_close(logits, expected)
    expected[0, -1].sum().backward()
    assert embedded.grad[0, 0].any()


def test_a_block_in_a_block_is_refused_and_the_outer_one_goes_on(model):
    with kvbench.compress(model, "streaming_llm", budget=20) as outer:
        with pytest.raises(UserError, match=r"in a kvbench.compress block already"), kvbench.compress(model, "full"):
            pytest.fail("the inner block ran")
        generate(model)
        assert outer.cache.ratio["r"] == 20 / 60
    assert model.config._attn_implementation == "sdpa"
    with kvbench.compress(model, "full"):
        generate(model)


def test_a_second_thread_is_refused_while_the_first_has_its_block(model):
    said = []

    def second():
        try:
            with kvbench.compress(model, "full"):
                said.append("ran")
        except UserError as error:
            said.append(str(error))

    with kvbench.compress(model, "full"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(said) == 1 and "another thread" in said[0]


def test_prompts_of_two_threads_in_one_block_have_a_cache_each(model):
    """The latest cache of the block was handed to both, which then held two prompts."""

    class Together(list):
        both = threading.Barrier(2, timeout=60)

        def append(self, cache):
            super().append(cache)
            self.both.wait()

    ids, answers = [prompt(60), prompt(50, seed=1)], {}
    expected = [generate(model, one) for one in ids]
    with kvbench.compress(model, "full") as compression:
        compression.caches = Together()
        threads = [
            threading.Thread(target=lambda one=one: answers.update({len(one): generate(model, one)})) for one in ids
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answers[len(one)] for one in ids] == expected
    assert sorted(cache.get_seq_length() for cache in compression.caches) == [53, 63]


def test_chunks_of_a_prompt_are_refused_and_without_them_all_is_compressed(model):
    with pytest.raises(UserError, match="prefill_chunk_size=16"), kvbench.compress(model, "streaming_llm", budget=20):
        generate(model, prefill_chunk_size=16)
    ours = tiny_model()
    with pytest.raises(UserError, match="prefill_chunk_size=16"):
        generate(ours, past_key_values=CompressedCache(ours, "full"), prefill_chunk_size=16)


def test_an_early_exit_is_refused_and_leaves_the_model_its_layers():
    model = sliding_model("gemma3", "sdpa")
    before = generate(model)
    with pytest.raises(UserError, match="assistant_early_exit"), kvbench.compress(model, "full"):
        generate(model, assistant_early_exit=1)
    assert generate(model) == before


def test_a_cache_is_refused_after_its_block(model):
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        generate(model)
    with pytest.raises(UserError, match=r"within its kvbench\.compress block"):
        generate(model, prompt(70), past_key_values=compression.cache)


def test_a_share_of_tokens_yet_to_come_is_refused(model):
    overrides = ["decode.compress={every: 8, of: total}"]
    with (
        pytest.raises(UserError, match="of=total is a share of the prompt and of the new tokens"),
        kvbench.compress(model, "knorm", ratio=0.5, overrides=overrides),
    ):
        pytest.fail("the block ran")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": 3}, "method must be a name or an object of a method's class, not int"),
        ({"method": "snapkv", "ratio": "0.3"}, "ratio='0.3' must be a number"),
        ({"method": "snapkv", "budget": 20.5}, "budget=20.5 must be a whole number of tokens"),
        ({"method": "snapkv", "ratio": True}, "ratio=True must be a number"),
        ({"method": "snapkv", "ratio": 0.3, "overrides": "a=b"}, "overrides='a=b' must be a list"),
        (
            {"method": "snapkv", "ratio": 0.3, "overrides": ["method.snapkv.scoring.windw=16"]},
            "unknown key 'windw'. Did you mean 'window'?",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message, model):
    with pytest.raises(UserError, match=message), kvbench.compress(model, **arguments):
        pytest.fail("the block ran")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("prefill.chunk=512", "prefill.chunk=512 has no effect for a cache in generate, which reads method, "),
        ("+question=hidden", "has no effect for a cache in generate"),
        ("ratio=[0.2,0.4]", "has no effect for a cache in generate"),
        ("method=h2o", "method=h2o: the method is the argument 'snapkv'"),
        ("+method.snapkv.ratio=[0.2,0.4]", "runs one setting at a time, not snapkv 0.2, snapkv 0.4"),
        ("press=KnormPress", "press=KnormPress is for method=kvpress, which is not chosen"),
        ("~method.snapkv", "runs one setting at a time, not none"),
    ],
)
def test_an_override_that_is_not_of_the_method_is_refused(override, message):
    """It had no effect, or chose another method or amount than the arguments say."""
    with pytest.raises(UserError, match=re.escape(message)):
        setting_of("snapkv", ratio=0.3, overrides=[override])


def test_a_part_that_lacks_what_another_part_follows_is_told_in_kvbenchs_words():
    part = "scoring@method.attention_matching.scoring=knorm"
    key = "method.attention_matching.storage.references"
    with pytest.raises(
        UserError, match=rf"^{key} follows scoring.references, which .* do not have: state it, {key}=…$"
    ):
        setting_of("attention_matching", ratio=0.5, overrides=[part])
    assert setting_of("attention_matching", ratio=0.5, overrides=[part, f"{key}=64", *STATED]).method.storage


def test_parts_of_a_method_are_exchanged_by_its_overrides():
    override = "storage@method.snapkv.storage=kivi"
    assert type(setting_of("snapkv", ratio=0.3, overrides=[override]).method.storage) is not Dense


@pytest.mark.parametrize("overrides", [None, iter(["method.snapkv.scoring.window=8"])], ids=["None", "iterator"])
def test_overrides_that_are_no_list_are_refused(overrides):
    """Reading an iterator to check it empties it."""
    with pytest.raises(UserError, match=r"must be a list of KEY=VALUE texts"):
        setting_of("snapkv", ratio=0.3, overrides=overrides)


def test_numbers_of_numpy_are_numbers():
    assert setting_of("snapkv", budget=np.int64(40)).label == "snapkv 40"
    assert setting_of(Eviction(), ratio=np.float32(0.5)).label == "Eviction 0.5"


@pytest.mark.parametrize("make", [kvbench.compress, CompressedCache])
def test_what_is_no_model_is_named(make):
    with pytest.raises(UserError, match="model must be a model of transformers, a PreTrainedModel, not str"):
        made = make("smollm2-135m", "full")
        made.__enter__()


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"past_key_values": DynamicCache()}], ids=str)
def test_an_ordinary_pass_with_kvbenchs_attention_is_refused_in_one_line(options):
    with pytest.raises(UserError, match=r"'kvbench' attends to a compressed prompt, and this pass has no cache of one"):
        tiny_model()(input_ids=prompt(20)[None], **options)


def test_a_pass_without_a_cache_in_a_block_is_refused_by_its_key(model):
    with pytest.raises(UserError, match="use_cache=False"), kvbench.compress(model, "snapkv", budget=40):
        generate(model, use_cache=False)
    assert model.config._attn_implementation == "sdpa" and generate(model)


@pytest.mark.parametrize("method", ["snapkv", Eviction()], ids=["name", "object"])
@pytest.mark.parametrize(
    "amount, said",
    [({"ratio": 30.0}, "outside"), ({"ratio": 0.0}, "outside"), ({"budget": 0}, "positive"), ({"budget": 9}, "small")],
    ids=str,
)
def test_an_amount_that_no_method_keeps_is_refused_for_a_name_and_for_an_object(method, amount, said):
    """Of 30 per cent as 30 an object would keep everything, and of 0 its window."""
    with pytest.raises(UserError, match=said):
        setting_of(method, **amount)


def test_a_model_that_is_refused_keeps_its_own_attention():
    """What reads later tokens is refused before the block runs, and again when it is tried again."""
    small = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    encoder = BertModel._from_config(BertConfig(**small, num_hidden_layers=2), attn_implementation="eager").eval()
    before = encoder(input_ids=prompt(20)[None]).last_hidden_state
    for _ in range(2):
        with pytest.raises(UserError, match="BertModel attends to later tokens"), kvbench.compress(encoder, "full"):
            pytest.fail("the block ran")
    assert encoder.config._attn_implementation == "eager"
    assert torch.equal(encoder(input_ids=prompt(20)[None]).last_hidden_state, before)


def test_each_part_of_a_model_gets_its_own_attention_back():
    """A model of images and text may attend to them in different ways."""
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = LlamaConfig(vocab_size=97, pad_token_id=0, bos_token_id=1, eos_token_id=None, **small)
    images = CLIPVisionConfig(image_size=16, patch_size=8, projection_dim=16, **small)
    config = LlavaConfig(vision_config=images.to_dict(), text_config=text.to_dict(), image_token_index=96)
    parts = {"": "sdpa", "text_config": "sdpa", "vision_config": "eager"}
    both = LlavaForConditionalGeneration._from_config(config, attn_implementation=parts).eval()
    with kvbench.compress(both, "streaming_llm", budget=20) as compression:
        generate(both, prompt(60).clamp(max=95))
    assert compression.cache.ratio["r"] == 20 / 60
    assert both.config._attn_implementation == both.config.text_config._attn_implementation == "sdpa"
    assert both.config.vision_config._attn_implementation == "eager"
