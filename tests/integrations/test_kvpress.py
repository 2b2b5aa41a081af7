"""kvpress as a method: the tokens and answers of kvpress itself."""

import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.cache.dense import DenseLayer
from kvbench.cache.ragged import RaggedLayer
from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.settings import build_settings
from kvbench.integrations.kvpress import presses
from kvbench.integrations.kvpress.method import KVPress
from kvbench.integrations.kvpress.prefill import PressedPrefill, own_attention
from kvbench.methods import Eviction, WindowAttention
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import Needs, prefill
from tests.support.presses import guest, method
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt

TARGET = "kvbench.integrations.kvpress.method.KVPress"


@pytest.fixture
def as_if(monkeypatch):
    """Pretend that kvpress is installed or not, beside some version of transformers."""

    def pretend(installed: bool, transformers: str = "5.2.0"):
        presses.kvpress.cache_clear()
        monkeypatch.setattr(presses.importlib.util, "find_spec", lambda name: object() if installed else None)
        wants = ["torch<3", "transformers<5.3,>=4.56.0", 'jieba>=0.42.1; extra == "eval"']
        monkeypatch.setattr(presses.metadata, "requires", lambda name: wants)
        versions = {"kvpress": "0.5.5", "transformers": transformers}
        monkeypatch.setattr(presses.metadata, "version", versions.__getitem__)

    yield pretend
    presses.kvpress.cache_clear()


def test_without_kvpress_one_line_tells_how_to_install_it(as_if):
    as_if(installed=False)
    with pytest.raises(UserError, match=r"not installed: pip install -c constraints-kvpress.txt 'kvbench\[kvpress\]'"):
        build_settings({"kvpress": {"_target_": TARGET, "press": "SnapKVPress"}}, 0.2, None)


def test_beside_a_newer_transformers_one_line_tells_what_kvpress_needs(as_if):
    as_if(installed=True, transformers="5.23.0")
    with pytest.raises(UserError, match=r"kvpress 0.5.5 needs transformers.*<5.3.*transformers 5.23.0 is installed"):
        build_settings({"kvpress": {"_target_": TARGET, "press": "SnapKVPress"}}, 0.2, None)


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_a_prompt_beyond_a_sliding_window_is_refused_before_the_press_runs(family):
    plan = PressedPrefill("SnapKVPress", "{}", "sdpa", 0.5)
    with pytest.raises(UserError, match=r"presses compress every layer, and 60 tokens exceed .* window of 12"):
        plan.run(sliding_model(family), prompt(60), Needs())


MISTAKES = {
    ("press=SnapKVPres",): "unknown press 'SnapKVPres'. Did you mean 'SnapKVPress'? Allowed: AdaKVPress, ",
    ("press=ScorerPress",): "unknown press 'ScorerPress'",
    ("press=SnapKVPress", "press_args={window: 3}"): "unknown argument of SnapKVPress 'window'. Did you mean 'window_",
    ("press=SnapKVPress", "press_args={compression_ratio: 0.5}"): "compression_ratio = 1 - ratio",
    ("press=AdaKVPress",): "AdaKVPress.__init__() missing 1 required positional argument: 'press'",
    ("press=AdaKVPress", "press_args={press: {SnapKVPress: {kernel: 3}}}"): "unknown argument of SnapKVPress 'kernel'",
    ("press=AdaKVPress", "press_args={press: 3}"): "AdaKVPress requires a ScorerPress as input",
    ("press=DecodingPress", "press_args={base_press: KnormPress}"): "DecodingPress acts while decoding",
    ("press=DMSPress", "press_args={press: KnormPress, decoding: true}"): "DMSPress acts while decoding",
    ("press=SnapKVPress", "method.kvpress.attention=flash"): "unknown attention 'flash'",
}


@guest
@pytest.mark.parametrize("overrides", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_before_any_model_is_loaded(overrides):
    with pytest.raises(UserError) as refused:
        method(*overrides)
    assert MISTAKES[overrides] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def sample():
    """A number among the events of a diary, and the question for it."""
    line = "On day {} the ferry to the island carried {} passengers and the harbour master noted the weather. "
    context = "".join(line.format(day, 31 * day % 97) for day in range(1, 8))
    context += "The secret number of Oslo is 7391426. " + "".join(line.format(day, 17) for day in range(8, 11))
    return Sample("a", context + "\n\n" + ASK, ("7391426",), 10, question="\n\n" + ASK)


ASK = "What is the secret number of Oslo? Answer with the number."


def pressed(model, ids, name: str, args: dict | None = None, ratio: float = 0.5, attention: str = "sdpa"):
    """The caches of a press at a ratio, and the last logits."""
    guest, n = KVPress(name, args, attention), len(ids)
    budget = ratio * n if guest.takes_budget else n
    return SharedPass(model, ids, guest.plan(n, 30, budget), Needs()).compress(guest, budget)


@guest
@pytest.mark.parametrize("ratio", [0.2, 0.5])
def test_snapkv_of_kvpress_and_of_kvbench_keep_the_same_tokens(embedded, sample, ratio):
    """With kvpress's window, kernel and means; the question is hidden, as kvpress's pipeline has it."""
    ids = tokenise(embedded, sample, "hidden").context
    method = Eviction(scoring=WindowAttention(window=32, kernel=7, pooling="avg"))
    state = prefill(embedded.model, ids, method.needs)
    budget = int(ratio * len(ids) + 1e-9)
    ours = method.compress(state, budget)
    theirs = pressed(embedded.model, ids, "SnapKVPress", {"window_size": 32, "kernel_size": 7}, ratio).caches
    equal = 0
    for layer, mine, other in zip(state.layers, ours, theirs, strict=True):
        assert mine.nbytes == other.nbytes
        scores = method.scores(layer, 32)
        for head, keys in enumerate(layer.keys):
            kept = [torch.cdist(cache.k.view[0, head], keys).argmin(dim=-1).tolist() for cache in (mine, other)]
            assert len(kept[0]) == len(set(kept[0])) == len(set(kept[1])) == budget
            exchanged = scores[head, sorted(set(kept[0]) ^ set(kept[1]))]
            equal += len(exchanged) == 0
            # pooling makes plateaus, where the smallest rounding error chooses
            assert len(exchanged) == 0 or exchanged.max() - exchanged.min() <= 1e-6 * exchanged.max()
    assert equal >= 88  # of 90


GUESTS = {
    "SnapKVPress": {"window_size": 16},
    "ExpectedAttentionPress": {},
    "AdaKVPress": {"press": "KnormPress"},  # masks: kvpress fakes keys that attention does not see
    "KVzipPress": {},  # masks too, and reads the context twice
    "KeyRerotationPress": {"press": "KnormPress"},  # gives what is left new positions
    "ThinKPress": {"key_channel_compression_ratio": 0.5},
    "ComposedPress": {
        "presses": [{"KnormPress": {"compression_ratio": 0.3}}, {"StreamingLLMPress": {"compression_ratio": 0.3}}]
    },
}


@guest
@pytest.mark.parametrize("name", GUESTS)
def test_answers_are_those_of_kvpress_itself(embedded, sample, name):
    """kvpress's own pipeline, on the same tokens: its cache, its attention, its positions, its decoding."""
    import kvpress

    prompt, model = tokenise(embedded, sample, "hidden"), embedded.model
    compressed = pressed(model, prompt.context, name, GUESTS[name])
    cache = batched([compressed.caches])
    logits = read(model, cache, prompt.question)
    ours = decode(model, cache, logits, sample.max_new_tokens, embedded.stop_tokens)[0].tokens

    press = presses.build_press(name, GUESTS[name])
    if presses.takes_ratio(press):
        press.compression_ratio = 0.5 - 1e-9
    with own_attention(model, "sdpa"), torch.no_grad():
        pipeline = kvpress.KVPressTextGenerationPipeline(model=model, tokenizer=embedded.tokenizer)
        inputs = {"context_ids": prompt.context[None], "questions_ids": [prompt.question[None]]}
        (theirs,) = pipeline._forward(inputs, max_new_tokens=sample.max_new_tokens, press=press)
    assert embedded.decode(ours) == theirs
    assert len(ours) > 3


@guest
def test_what_a_press_masks_is_dropped_and_what_it_zeroes_is_counted(embedded, sample):
    ids = tokenise(embedded, sample, "visible").context
    n = len(ids)
    full = 30 * 2 * 3 * n * 64 * 4
    masked = pressed(embedded.model, ids, "AdaKVPress", {"press": "KnormPress"}, 0.25)
    assert masked.full_bytes == full
    assert all(isinstance(cache, RaggedLayer) for cache in masked.caches)
    lengths = [tuple(segment.length for segment in cache.segments) for cache in masked.caches]
    assert len({length for heads in lengths for length in heads}) > 5  # heads differ
    assert [cache.kept.per_head for cache in masked.caches] == lengths
    assert sum(cache.nbytes for cache in masked.caches) == 30 * 2 * 3 * (n // 4) * 64 * 4
    assert {cache.kept.retained for cache in masked.caches} == {2 * 3 * (n // 4)}
    assert masked.peak_bytes > full  # kvpress had it all until the pass was over

    zeroed = pressed(embedded.model, ids, "ThinKPress", {"key_channel_compression_ratio": 0.5})
    assert sum(cache.nbytes for cache in zeroed.caches) == full
    assert {cache.kept.r1 for cache in zeroed.caches} == {1.0}

    dropped = pressed(embedded.model, ids, "KnormPress", None, 0.25)
    assert all(isinstance(cache, DenseLayer) for cache in dropped.caches)
    stored = sum(cache.nbytes for cache in dropped.caches)
    assert stored == 30 * 2 * 3 * (n // 4) * 64 * 4
    assert dropped.peak_bytes == stored + full // 30  # one whole layer beside the compressed ones


@guest
def test_a_press_that_complains_is_told_in_one_line_and_leaves_the_model_as_it_was(embedded, sample):
    ids = tokenise(embedded, sample, "visible").context
    with pytest.raises(UserError, match=r"press SnapKVPress of kvpress .*Query length 40 should be greater"):
        pressed(embedded.model, ids[:40], "SnapKVPress")
    with pytest.raises(UserError, match=r"method\.kvpress\.attention=eager$"):
        pressed(embedded.model, ids, "ObservedAttentionPress")
    assert pressed(embedded.model, ids, "ObservedAttentionPress", attention="eager").caches
    assert embedded.model.config._attn_implementation == ATTENTION
    assert not any(layer.self_attn._forward_hooks for layer in embedded.model.model.layers)
    state = prefill(embedded.model, ids, Needs())  # kvbench's attention is not kvpress's
    assert state.n == len(ids)
