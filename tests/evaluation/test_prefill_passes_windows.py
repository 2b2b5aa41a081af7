"""Models with sliding windows: FullKV is the model itself, beyond the window, in chunks, streamed, batched, hidden."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from transformers import PreTrainedModel

from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, decode, generate, read
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass, num_layers
from kvbench.methods import Eviction, ExpectedAttention, FullKV, WindowAttention
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import FullPrefill, Needs
from kvbench.prefill.chunked import ChunkedPrefill
from tests.support.answers import agree
from tests.support.sliding import LAYERS, WINDOW, beside_an_image_encoder, sliding_model
from tests.support.tiny import prompt

FAMILIES = ["gemma3", "qwen2", "mistral", "gemma2", "gpt_oss"]
TOKEN = 2 * 2 * 32 * 4  # bytes of one token in one layer
NEW = WINDOW + 4  # so that no token of the prompt is left in a window
PLANS = {"whole": FullPrefill(), "chunks": ChunkedPrefill(7), "large chunks": ChunkedPrefill(33)}


@cache
def made(family: str, implementation: str = ATTENTION) -> PreTrainedModel:
    return sliding_model(family, implementation)


def expected(family: str, ids: torch.Tensor) -> list[int]:
    out = made(family, "eager").generate(ids[None], max_new_tokens=NEW, do_sample=False)
    return out[0, len(ids) :].tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("n", [5, WINDOW - 1, WINDOW, WINDOW + 1, 60])
@pytest.mark.parametrize("family", FAMILIES)
def test_fullkv_generates_the_models_tokens_at_any_length(family, n):
    model, ids = made(family), prompt(n)
    tokens = expected(family, ids)
    assert len(set(tokens)) > 5
    sources = [
        source
        for plan in PLANS.values()
        for source in (SharedPass(model, ids, plan, Needs()), StreamedPass(model, ids, plan))
    ]
    every = [source.compress(FullKV(), n) for source in sources]
    for compressed in every:
        held = compressed.full_bytes
        assert held == sum(cache.nbytes for cache in compressed.caches) == compressed.stored_bytes(compressed.caches)
    if n == 5:
        assert agree(generate(model, every[0].caches, every[0].logits, NEW, frozenset()), tokens)
        return
    cache = batched([compressed.caches for compressed in every])
    logits = torch.stack([compressed.logits for compressed in every])
    assert all(agree(answer, tokens) for answer in decode(model, cache, logits, NEW, frozenset()))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_in_bfloat16_are_as_near_to_those_of_float32_as_the_models(family):
    model, ids = deepcopy(made(family)).to(torch.bfloat16), prompt(60)
    with torch.inference_mode():
        exact = made(family, "eager")(ids[None]).logits[0, -1]
        theirs = deepcopy(made(family, "eager")).to(torch.bfloat16)(ids[None]).logits[0, -1]
    ours = SharedPass(model, ids, FullPrefill(), Needs()).state.logits
    assert torch.dist(ours.float(), exact) < 1.5 * torch.dist(theirs.float(), exact)


@pytest.mark.parametrize(("family", "full"), [("gemma3", 2), ("qwen2", 3)])
@pytest.mark.parametrize("n", [5, WINDOW, 60])
def test_bytes_are_those_of_the_window_and_of_all_tokens_in_the_other_layers(family, full, n):
    compressed = SharedPass(made(family), prompt(n), FullPrefill(), Needs()).compress(FullKV(), n)
    windows = (LAYERS - full) * min(n, WINDOW - 1) * TOKEN
    assert compressed.window_bytes == compressed.fixed_bytes == windows
    assert compressed.full_bytes == full * n * TOKEN + windows


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "mistral"])
def test_each_question_is_read_from_the_window_that_the_context_left(family):
    model, context = made(family), prompt(50)
    questions = [prompt(q, seed=q) for q in (3, WINDOW + 9, 1)]
    compressed = SharedPass(model, context, FullPrefill(), Needs()).compress(FullKV(), 50)
    for question, caches in zip(questions, compressed.copies(len(questions)), strict=True):
        cache = batched([caches])
        (answer,) = decode(model, cache, read(model, cache, question), NEW, frozenset())
        assert agree(answer, expected(family, torch.cat([context, question])))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "mistral"])
def test_settings_decode_in_a_batch_as_alone(family):
    model, ids = made(family), prompt(60)
    snapkv = Eviction(scoring=WindowAttention(window=8))
    source = SharedPass(model, ids, FullPrefill(), snapkv.needs)
    pairs = [(FullKV(), 60), (snapkv, 15), (snapkv, 30)]
    alone = [generate(model, c.caches, c.logits, NEW, frozenset()) for c in (source.compress(*pair) for pair in pairs)]
    together = [source.compress(*pair) for pair in pairs]
    cache = batched([compressed.caches for compressed in together])
    outputs = decode(model, cache, torch.stack([c.logits for c in together]), NEW, frozenset())
    assert all(agree(output, other.tokens) for output, other in zip(outputs, alone, strict=True))
    assert [output.decode_bytes for output in outputs] == [output.decode_bytes for output in alone]
    assert agree(outputs[0], expected(family, ids)) and outputs[0].tokens != outputs[1].tokens


def test_a_windows_bytes_are_the_same_under_every_method_while_decoding():
    model, ids = made("gemma3"), prompt(60)
    snapkv = Eviction(scoring=WindowAttention(window=8))
    source = SharedPass(model, ids, FullPrefill(), snapkv.needs)
    for method, budget, kept in ((FullKV(), 60, 60), (snapkv, 15, 15)):
        compressed = source.compress(method, budget)
        counts = generate(model, compressed.caches, compressed.logits, 5, frozenset()).decode_bytes
        windows = 4 * WINDOW * TOKEN  # a pass holds its own token, too
        assert counts.fixed == 4 * windows
        assert counts.held == sum(2 * (kept + step) * TOKEN + windows for step in (1, 2, 3, 4))
        end = sum(cache.filled_bytes for cache in compressed.caches)
        sliding = compressed.fixed_bytes, 4 * (WINDOW - 1) * TOKEN
        figures = counts.figures(end, 0, compressed.full_bytes, 60, fixed=sliding)
        full = sum(2 * (60 + step) * TOKEN + windows for step in (1, 2, 3, 4))
        assert figures.r_mean == counts.held / full
        assert figures.r_end == (2 * (kept + 4) + 4 * (WINDOW - 1)) / (2 * 64 + 4 * (WINDOW - 1))
        if kept == 60:
            assert figures.r_mean == figures.r_end == figures.r_read == 1


def test_the_text_model_beside_an_image_encoder_is_found():
    model, ids = sliding_model("gemma3", config=beside_an_image_encoder()), prompt(60).clamp(max=90)
    reference = sliding_model("gemma3", "eager", beside_an_image_encoder())
    expected = Eviction(scoring=ExpectedAttention())  # it rotates keys back
    needs = expected.needs | Needs(hidden_similarity=True, value_output_norm=True)
    source = SharedPass(model, ids, FullPrefill(), needs)
    compressed = source.compress(FullKV(), 60)
    tokens = reference.generate(ids[None], max_new_tokens=NEW, do_sample=False)[0, 60:].tolist()
    assert agree(generate(model, compressed.caches, compressed.logits, NEW, frozenset()), tokens)
    compressed = source.compress(expected, 20)
    assert [cache.kept is None for cache in compressed.caches] == [True, True, False] * 2
    assert len(generate(model, compressed.caches, compressed.logits, 3, frozenset()).tokens) == 3


def test_where_every_layer_slides_methods_compress_prompts_within_the_window_alone():
    model, snapkv = made("mistral"), Eviction(scoring=WindowAttention(window=4))
    assert num_layers(model, WINDOW - 1) == LAYERS and num_layers(model, WINDOW) == 0
    compressed = SharedPass(model, prompt(10), FullPrefill(), snapkv.needs).compress(snapkv, 6)
    assert [cache.kept.retained for cache in compressed.caches] == [2 * 2 * 6] * LAYERS
    assert len(generate(model, compressed.caches, compressed.logits, 3, frozenset()).tokens) == 3
    compressed = SharedPass(model, prompt(10), FullPrefill(), snapkv.needs).compress(snapkv, 6)
    with pytest.raises(UserError, match=f"13 tokens exceed this model's sliding attention window of {WINDOW}"):
        generate(model, compressed.caches, compressed.logits, NEW, frozenset())
