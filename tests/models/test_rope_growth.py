"""The same sample has the same logits whatever was read before it, for every kind of RoPE that transformers has."""

from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, Phi3Config, Phi3ForCausalLM, PreTrainedModel

import kvbench
from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples
from kvbench.evaluation.decode import batched, generate, read
from kvbench.evaluation.prompts import tokenise
from kvbench.methods import FullKV
from kvbench.models import LoadedModel, ModelSpec
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.rope_growth import Growth, forget_lengths, growth_of
from kvbench.prefill import Needs, prefill
from kvbench.runner.kinds import OfSpeed
from tests.evaluation.test_prompts_first_token import Unlimited
from tests.ops.test_rope import GROUPED, PARAMETERS, SIZES, TRAINED, VARYING, rotated_model
from tests.support.given import Given
from tests.support.tiny import knowing, prompt

LENGTHS = (TRAINED - 7, TRAINED, 3 * TRAINED, 2 * TRAINED)


def logits_of(model, n: int) -> torch.Tensor:
    """Of a prompt and of two tokens behind it: what a sample leaves in the model, it leaves while decoding, too."""
    state = prefill(model, prompt(n), Needs())
    generate(model, FullKV().compress(state, n), state.logits, 3, frozenset())
    return state.logits


@pytest.mark.parametrize("kind", sorted(PARAMETERS))
def test_a_sample_has_the_same_logits_in_any_order(kind):
    """With dynamic frequencies a shorter sample had those of the longest one before it: logits differed by 12."""
    model = rotated_model(kind)
    forwards = {n: logits_of(model, n) for n in LENGTHS}
    backwards = {n: logits_of(model, n) for n in reversed(LENGTHS)}
    for n in LENGTHS:
        assert torch.equal(forwards[n], backwards[n]), n


@pytest.mark.parametrize("kind", sorted(VARYING))
def test_frequencies_of_a_type_of_layers_are_forgotten_too(kind):
    model = AutoModelForCausalLM.from_config(typed_config(kind), attn_implementation=ATTENTION).eval()
    alone, *_, again = [prefill(model, prompt(n), Needs()).logits for n in (2 * TRAINED, 3 * TRAINED, 2 * TRAINED)]
    assert torch.equal(again, alone)
    assert growth_of(model) == Growth(kind, TRAINED, kind == "longrope")


def typed_config(kind: str):
    parameters = {"rope_type": kind} | PARAMETERS[kind]
    types = {"full_attention": parameters, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
    return Gemma3TextConfig(**SIZES | {"max_position_embeddings": TRAINED}, **GROUPED, **layers, rope_parameters=types)


def test_prompts_of_kvbench_compress_do_not_depend_on_each_other():
    model, answers = rotated_model("dynamic"), []
    with kvbench.compress(model, "full") as block:
        for n in (2 * TRAINED, 3 * TRAINED, 2 * TRAINED):
            model.generate(prompt(n)[None], max_new_tokens=4, do_sample=False, pad_token_id=0)
            answers.append(block.cache.layers[1].inner.tensors()[0][..., :n, :].clone())
    assert torch.equal(answers[0], answers[2])


@pytest.mark.parametrize("kind", sorted(PARAMETERS))
def test_only_dynamic_and_longrope_grow(kind):
    growth = growth_of(model := rotated_model(kind))
    assert growth == (Growth(kind, TRAINED, kind == "longrope") if kind in VARYING else None)
    before = model.base_model.rotary_emb.inv_freq.clone()
    prefill(model, prompt(3 * TRAINED), Needs())
    forget_lengths(model)
    assert kind == "longrope" or torch.equal(model.base_model.rotary_emb.inv_freq, before)


@pytest.mark.parametrize(
    ("context", "max_new_tokens", "refused"),
    [
        (TRAINED - 5, 6, False),  # the sixth new token is never read
        (TRAINED - 5, 7, True),
        (TRAINED + 8, 1, False),  # nothing is read behind the prompt
        (TRAINED + 8, 2, True),  # each further token has frequencies of its own
    ],
)
def test_a_text_of_which_keys_have_several_frequencies_is_refused(embedded, context, max_new_tokens, refused):
    spec = ModelSpec(name="ntk", max_length=512, hub_id="org/ntk")
    loaded = LoadedModel(spec, knowing(rotated_model("dynamic"), embedded.tokenizer), embedded.tokenizer, "org/ntk")
    sample = Sample("a", "and" + " and" * (context - 1), ("x",), max_new_tokens, chat=False)
    if not refused:
        assert len(tokenise(loaded, sample, "visible").context) == context
        return
    end = context + max_new_tokens - 1
    with pytest.raises(
        UserError, match=rf"goes from {context} to {end} .* beyond {TRAINED} \(rope_type=dynamic\): use"
    ):
        tokenise(loaded, sample, "visible")


@pytest.mark.parametrize(
    ("kind", "tokens", "first_token", "refused"),
    [
        ("longrope", TRAINED, "compressed", False),
        ("longrope", TRAINED + 1, "full", False),
        ("longrope", TRAINED + 1, "compressed", True),  # only the last token, read by itself, exceeds the length
        ("longrope", TRAINED + 2, "compressed", False),  # the others exceed it, too, and all longer texts are alike
        ("dynamic", TRAINED + 8, "full", False),
        ("dynamic", TRAINED + 8, "compressed", True),
    ],
)
@pytest.mark.parametrize("benchmark", [Given, Unlimited])
def test_a_last_token_read_alone_is_part_of_the_text_behind_the_context(
    embedded, kind, tokens, first_token, refused, benchmark
):
    """Refused before the first sample, whether or not the benchmark knows its longest prompt: the last token would have
    other logits behind an uncompressed cache than in the prompt's own pass."""
    model, ids = rotated_model(kind), prompt(tokens)
    caches = FullKV().compress(prefill(model, ids[:-1], Needs()), tokens)
    apart = read(model, batched([caches]), ids[-1:])[0]
    if first_token == "compressed":
        assert torch.allclose(apart, prefill(model, ids, Needs()).logits, atol=1e-5) != refused
    spec = ModelSpec(name="grows", max_length=512, hub_id="org/grows")
    loaded = LoadedModel(spec, knowing(model, embedded.tokenizer), embedded.tokenizer, "")
    sample = Sample("a", "and" + " and" * (tokens - 1), ("x",), 1, chat=False)
    check = partial(check_samples, loaded, benchmark([sample]), [sample], "visible", first_token=first_token)
    if not refused:
        check()
        return
    crossed = rf"goes from {tokens - 1} to {tokens} .* beyond {TRAINED} \(rope_type={kind}\)"
    with pytest.raises(UserError, match=crossed):
        check()


def test_texts_that_are_only_timed_may_cross_the_length(embedded):
    spec = ModelSpec(name="grows", max_length=512, hub_id="o/g")
    loaded = LoadedModel(spec, knowing(rotated_model("longrope"), embedded.tokenizer), embedded.tokenizer, "")
    sample = Sample("a", "and" + " and" * (TRAINED - 1), (), 40, chat=False)
    with pytest.raises(UserError, match=f"beyond {TRAINED} "):
        check_samples(loaded, Given([sample]), [sample], "visible")
    check_samples(loaded, Given([sample]), [sample], "visible", timed=OfSpeed(None).timed)


LONGROPE = PARAMETERS["longrope"] | {"rope_type": "longrope", "original_max_position_embeddings": TRAINED}
PHI3 = (
    SIZES | GROUPED | {"rope_parameters": LONGROPE, "original_max_position_embeddings": TRAINED, "eos_token_id": None}
)


def phi3() -> PreTrainedModel:
    return Phi3ForCausalLM._from_config(Phi3Config(**PHI3), attn_implementation="sdpa").eval()


def test_an_answer_of_phi3_in_generate_that_crosses_the_length_is_refused():
    """Phi-3's code reads prompt and answer again there, which compressed both: the ratio was of the longer text."""
    model, ids = phi3(), prompt(TRAINED - 4)[None]
    long = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        model.generate(ids, max_new_tokens=5, **long)
        assert [cache.ratio["r"] for cache in compression.caches] == [20 / (TRAINED - 4)]
        crossed = rf"^{TRAINED + 1} tokens after a prompt of {TRAINED - 4}: beyond {TRAINED} .* \(rope_type=longrope\)"
        with pytest.raises(UserError, match=crossed):
            model.generate(ids, max_new_tokens=6, **long)
        assert len(compression.caches) == 2


def test_a_prompt_behind_the_length_is_read_once_after_a_text_that_ended_there():
    model, ids = phi3(), prompt(TRAINED + 1)[None]
    long = {"do_sample": False, "pad_token_id": 0}
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        model.generate(ids[:, :-1], attention_mask=torch.ones_like(ids[:, :-1]), max_new_tokens=1, **long)
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, **long)
    assert [cache.get_seq_length() for cache in compression.caches] == [TRAINED, TRAINED + 8]
