"""FullKV through kvbench is the model's own generation, to the token."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.prefill import Needs, prefill
from tests.support.answers import agree
from tests.support.tiny import SHAPES, prompt, tiny_model


def answer(model, ids, steps, needs=None):
    state = prefill(model, ids, needs or Needs())
    return generate(model, FullKV().compress(state, state.n), state.logits, steps, frozenset())


@pytest.mark.parametrize(("family", "layout"), SHAPES)
@pytest.mark.parametrize("n", [1, 2, 70])
def test_tiny_models_generate_the_same_tokens(family, layout, n):
    stock = tiny_model(family, layout, implementation="sdpa").double()
    expected = stock.generate(prompt(n)[None], do_sample=False, max_new_tokens=40)[0, n:].tolist()
    assert answer(tiny_model(family, layout).double(), prompt(n), 40).tokens == expected
    assert len(set(expected)) > 3  # a model that repeats one token would hide a wrong cache


def test_observing_does_not_change_the_tokens():
    model = tiny_model().double()
    assert answer(model, prompt(60), 40).tokens == answer(model, prompt(60), 40, Needs(16, True)).tokens


@pytest.mark.heavy
def test_the_embedded_model_generates_the_same_tokens(embedded):
    stock = AutoModelForCausalLM.from_pretrained(embedded.source, dtype=torch.float32)
    ids = embedded.encode("Tell me how bread is baked, step by step.", chat=True)
    expected = stock.generate(ids[None], do_sample=False, max_new_tokens=32)[0, len(ids) :].tolist()
    assert agree(answer(embedded.model, ids, 32), expected)
