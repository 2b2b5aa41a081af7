"""Passes for one token that are repeated without the model's modules: the same bits, or the model makes them itself."""

import gc
import weakref
from functools import reduce
from operator import or_

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, MixtralConfig

from kvbench.cache.batch import BatchCache
from kvbench.evaluation import steps
from kvbench.evaluation.decode import batched, decode_greedily
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.speed.rounds import WARM_TOKENS
from kvbench.methods import FullKV
from kvbench.models import one_token
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.cache_argument import as_argument
from kvbench.models.one_token import OneToken
from kvbench.models.repeated_pass import RepeatedPass
from kvbench.prefill import FullPrefill, Needs, prefill
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.tiny import prompt, tiny_model

N, TOKENS, STEPS = 90, 24, 8
RECORDED = one_token.WARM
KINDS = ["full", "adakv", "kivi", "h2o", "tova", "spindle", "minicache", "quest", "duo_attention"]


@pytest.fixture(autouse=True)
def warm(monkeypatch):
    monkeypatch.setattr(one_token, "WARM", 1)


@pytest.fixture
def repeated(monkeypatch) -> list[int]:
    """The rows of each pass that was repeated."""
    rows: list[int] = []
    call = RepeatedPass.__call__
    monkeypatch.setattr(RepeatedPass, "__call__", lambda self, *args: rows.append(len(args[0])) or call(self, *args))
    return rows


@pytest.fixture(scope="module")
def model():
    return tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM)


def cache_of(model, names: list[str]) -> tuple[BatchCache, torch.Tensor]:
    methods = [setting(name).method for name in names]
    with torch.inference_mode():
        shared = SharedPass(model, prompt(N), FullPrefill(), reduce(or_, (method.needs for method in methods)))
        rows = [shared.compress(method, N // 2) for method in methods]
    return batched([row.caches for row in rows]), rows[0].logits.expand(len(rows), -1)


def decoded(model, names: list[str], stop=frozenset()) -> list[tuple]:
    found = decode_greedily(model, *cache_of(model, names), TOKENS, stop)
    return [(row.tokens, row.steps, row.close_call, row.decode_bytes) for row in found]


def by_modules(monkeypatch, work):
    """What work() returns where no pass is recorded."""
    with monkeypatch.context() as patch:
        patch.setattr(steps, "OneToken", lambda model: model)
        return work()


def logits_of(model, one=OneToken) -> torch.Tensor:
    """Those after each of some given tokens, [STEPS, 1, vocab_size]."""
    with torch.inference_mode():
        state = prefill(model, prompt(N), Needs())
        cache, one = batched([FullKV().compress(state, N)]), one(model)
        given, places = prompt(STEPS).view(-1, 1, 1), torch.arange(N, N + STEPS).view(-1, 1, 1)
        passes = (
            one(input_ids=ids, **as_argument(one, cache), position_ids=at, use_cache=True)
            for ids, at in zip(given, places, strict=True)
        )
        return torch.cat([made.logits for made in passes])


def own(model) -> torch.Tensor:
    return logits_of(model, lambda model: model)


def unfit(model) -> str | None:
    return one_token._KNOWN[model][1][1].unfit


def test_a_warm_up_round_records_what_the_measured_rounds_repeat():
    assert WARM_TOKENS - 1 > RECORDED + 1  # the first token comes from the prefill, and two passes are recorded


@pytest.mark.heavy
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_cache_decodes_the_same_tokens_and_counts_the_same_bytes(name, model, monkeypatch, repeated):
    again = decoded(model, [name])
    assert repeated == [1] * len(repeated) and len(repeated) >= TOKENS - 1 - 3
    assert again == by_modules(monkeypatch, lambda: decoded(model, [name]))


@pytest.mark.heavy
def test_rows_that_leave_a_batch_are_repeated_in_their_number(model, monkeypatch, repeated):
    names = ["full", "snapkv", "kivi", "streaming_llm"]
    first, *_, last = (row[0] for row in by_modules(monkeypatch, lambda: decoded(model, names)))
    stop = frozenset({next(token for token in last[6:14] if token not in first)})
    again = decoded(model, names, stop)
    assert len({row[1] for row in again}) > 1 and len(set(repeated)) > 1
    assert again == by_modules(monkeypatch, lambda: decoded(model, names, stop))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_those_of_the_model_bit_for_bit(dtype, repeated):
    model = tiny_model().to(dtype)
    assert torch.equal(logits_of(model), own(model)) and len(repeated) == STEPS - 3
    assert torch.equal(logits_of(model), own(model)) and len(repeated) == 2 * STEPS - 3  # with another cache


def test_nothing_of_a_cache_stays_behind():
    model = tiny_model()
    cache = None
    with torch.inference_mode():
        cache = batched([FullKV().compress(prefill(model, prompt(N), Needs()), N)])
        one = OneToken(model)
        for at in range(N, N + STEPS):
            one(torch.ones(1, 1, dtype=torch.long), cache, torch.tensor([[at]]), True)
    assert one.rows[1].checked
    seen = weakref.ref(cache)
    del cache
    gc.collect()
    assert seen() is None


class Norm(nn.Module):
    """The norm of a layer, and something that a list of torch's functions could not repeat."""

    def __init__(self, norm: nn.Module, kind: str):
        super().__init__()
        self.norm, self.kind, self.calls = norm, kind, 0

    def forward(self, x):
        self.calls += 1
        out = self.norm(x)
        if self.kind == "reads":
            return out + 1 if out.sum() > 0 else out
        if self.kind == "listed":
            return out + 1 if out.sum().tolist() > 0 else out
        if self.kind == "shapes":
            return out + len(out[out > 0.5])
        if self.kind == "counts":
            return out + self.calls
        if self.kind == "outside":
            return torch.from_dlpack(out.numpy() * 2)
        made = torch.empty_like(out)  # "writes": what no function of torch does
        made.numpy()[:] = out.numpy() * 2
        return made


REASONS = {
    "reads": "__bool__ returns no tensor",
    "listed": "tolist returns no tensor",
    "shapes": "index.Tensor",
    "counts": "two passes called different functions",
    "outside": "numpy returns no tensor",
    "writes": "numpy returns no tensor",
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_model_that_a_list_cannot_repeat_makes_its_passes_itself(kind, repeated):
    def made():
        model = tiny_model()
        model.model.layers[1].input_layernorm = Norm(model.model.layers[1].input_layernorm, kind)
        return model

    model = made()
    assert torch.equal(logits_of(model), own(made())) and not repeated
    assert REASONS[kind] in unfit(model)


def test_a_write_that_no_function_shows_is_found_by_the_bits(repeated, monkeypatch):
    """As a kernel would do that is given addresses."""
    model = tiny_model()
    layer = model.model.layers[1].self_attn.v_proj

    def forward(x):
        made = torch.empty_like(out := nn.functional.linear(x, layer.weight))
        with torch._C.DisableTorchFunction():
            made.copy_(out * 2)
        return made

    monkeypatch.setattr(layer, "forward", forward)
    assert torch.equal(logits_of(model), own(model)) and not repeated
    assert unfit(model) == "its calls do not reproduce another pass"


def test_experts_that_are_called_one_by_one_are_left_to_the_model(repeated):
    sizes = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 97}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4}
    torch.manual_seed(0)
    config = MixtralConfig(**sizes, **heads, max_position_embeddings=256)
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    assert torch.equal(logits_of(model), own(model)) and not repeated and unfit(model)


def test_a_model_that_was_changed_is_recorded_anew(repeated):
    model = tiny_model()
    before = logits_of(model)
    hook = model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: out * 2)
    assert torch.equal(logits_of(model), own(model)) and not torch.equal(own(model), before)
    hook.remove()
    assert torch.equal(logits_of(model), before)
    model.model.norm.weight = nn.Parameter(model.model.norm.weight * 2)
    assert torch.equal(logits_of(model), own(model)) and not torch.equal(own(model), before)
    model.bfloat16()
    assert torch.equal(logits_of(model), own(model)) and len(repeated) == 5 * (STEPS - 3)


def test_operations_that_somebody_watches_are_those_of_the_model():
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model = tiny_model()
    with Watching():
        logits_of(model)
    assert one_token._KNOWN[model][1][1].recorded is None
