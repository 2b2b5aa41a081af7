"""What a method of a user's returns is checked in a run: a cache for each layer, with what it kept and has seen."""

from dataclasses import dataclass

import pytest
import torch

import kvbench
from kvbench.errors import UserError
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.methods import Dense, Kept, Method, Needs, Selection
from kvbench.prefill import FullPrefill
from tests.support.tiny import prompt, tiny_model

N, LAYERS = 40, 3


def without_kept(caches):
    caches[1].kept = None


def more_than_the_prompt(caches):
    caches[0].kept = Kept.tokens(12, N, 12, 2)


def at_the_budgets_end(caches):
    caches[2].seen = 12


def of_another_type(caches):
    caches[0] = object()


def one_twice(caches):
    caches[2] = caches[0]


def too_few(caches):
    del caches[-1]


def too_many(caches):
    caches.append(Dense().store(*caches[0].made_of))


@dataclass
class FirstTokens(Method):
    """Keeps the first tokens, and makes one mistake."""

    mistake: object = None
    layerwise = False

    def compress_layer(self, layer, index, num_layers, budget):
        made_of = layer, Selection(torch.arange(budget).expand(len(layer.keys), -1), budget)
        cache = Dense().store(*made_of)
        cache.made_of = made_of
        return cache

    def compress(self, state, budget):
        caches = [self.compress_layer(layer, i, LAYERS, budget) for i, layer in enumerate(state.layers)]
        return caches if self.mistake is None else self.mistake(caches) or caches


@dataclass
class Streaming(FirstTokens):
    layerwise = True

    def compress_layer(self, layer, index, num_layers, budget):
        cache = super().compress_layer(layer, index, num_layers, budget)
        cache.kept = None
        return cache


def compressed(mistake) -> None:
    SharedPass(tiny_model(), prompt(N), FullPrefill(), Needs()).compress(FirstTokens(mistake), 12)


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (too_few, "FirstTokens.compress returned 2 caches: it must return a list of 3, one for each layer"),
        (too_many, "FirstTokens.compress returned 4 caches: it must return a list of 3"),
        (iter, "FirstTokens.compress returned a list_iterator: it must return a list of 3"),
        (of_another_type, "FirstTokens made an object of the type object of layer 0: it must be a LayerCache"),
        (without_kept, "FirstTokens made a DenseLayer of layer 1 with kept=None: it must say what is left"),
        (more_than_the_prompt, "FirstTokens made a DenseLayer of layer 0 that kept 160 of 48 vectors: `Kept.tokens"),
        (at_the_budgets_end, "FirstTokens made a DenseLayer of layer 2 with seen=12: it must be 40"),
        (one_twice, "FirstTokens made a DenseLayer of layer 2 that is another layer's, too"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(mistake, line):
    with pytest.raises(UserError, match=f"^{line}"):
        compressed(mistake)
    compressed(None)


def test_streamed_layers_and_those_of_generate_are_held_to_it_too():
    line = "^Streaming made a DenseLayer of layer 0 with kept=None"
    with pytest.raises(UserError, match=line):
        StreamedPass(tiny_model(), prompt(N), FullPrefill()).compress(Streaming(), 12)
    model = tiny_model()
    with kvbench.compress(model, Streaming(), budget=12), pytest.raises(UserError, match=line):
        model.generate(prompt(N)[None], max_new_tokens=4, do_sample=False, pad_token_id=0)


def test_a_method_may_say_that_decoding_goes_on_from_positions_of_its_own():
    """As a press of kvpress that turns keys to the positions of the tokens that it keeps."""

    @dataclass
    class Turned(FirstTokens):
        own_positions = True

    caches = SharedPass(tiny_model(), prompt(N), FullPrefill(), Needs()).compress(Turned(at_the_budgets_end), 12).caches
    assert [cache.get_seq_length() for cache in caches] == [N, N, 12]
