"""Models that take their cache as `cache`, as since transformers 5.24, and those that take `past_key_values`."""

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM

import kvbench
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.models.cache_argument import NAMES, as_argument, name_of
from kvbench.prefill import FullPrefill
from tests.support.every_method import setting
from tests.support.tiny import prompt, tiny_config, tiny_model

N = 60


class New(LlamaForCausalLM):
    def forward(self, input_ids, cache=None, **options):
        return super().forward(input_ids=input_ids, **as_argument(self.before, cache), **options)


class Old(LlamaForCausalLM):
    def forward(self, input_ids, past_key_values=None, **options):
        return super().forward(input_ids=input_ids, **as_argument(self.before, past_key_values), **options)


@pytest.fixture(params=[New, Old], ids=NAMES)
def model(request):
    before = tiny_model()
    made = request.param(tiny_config()).eval()
    made.load_state_dict(before.state_dict())
    made.set_attn_implementation(before.config._attn_implementation)
    object.__setattr__(made, "before", before)  # no part of the model
    return made


def test_the_name_is_that_of_the_forward_pass(model):
    assert name_of(model) == ("cache" if isinstance(model, New) else "past_key_values")


@pytest.mark.parametrize("name", ["snapkv", "kvzip"])
def test_a_setting_decodes_what_it_decodes_with_transformers_own_model(model, name):
    one, found = setting(name), []
    for each in (model, model.before):
        compressed = SharedPass(each, prompt(N), FullPrefill(), one.method.needs).compress(one.method, N // 2)
        found.append(generate(each, compressed.caches, compressed.logits, 12, frozenset()).tokens)
    assert found[0] == found[1]


@pytest.mark.parametrize("given", NAMES)
def test_a_block_puts_its_cache_in_place_of_an_empty_one_under_either_name(model, given):
    ids = prompt(N)[None]
    with kvbench.compress(model.before, "full"):
        expected = model.before(input_ids=ids).logits
    with kvbench.compress(model, "snapkv", ratio=0.5, overrides=["method.snapkv.scoring.window=8"]) as compression:
        logits = model(input_ids=ids, use_cache=True, **{given: DynamicCache()}).logits
    assert torch.equal(logits, expected)
    assert compression.cache.ratio["r"] == 0.5
