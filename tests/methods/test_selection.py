"""A selection of a user's, at prefill's end or while decoding, has each token once: checked in a run."""

from dataclasses import dataclass, field

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import DecodeCompression, Dense, Method, Needs, Selection, interval_layer
from kvbench.prefill import FullPrefill
from tests.support.fake_devices import FakeDevices, place
from tests.support.tiny import prompt, random_layer, tiny_model

KEPT = torch.arange(12).expand(2, -1)
TWICE = torch.tensor([[0, 1, 2], [3, 5, 5]])


@dataclass
class Given(Method):
    """Keeps tokens at given indices."""

    indices: object = None

    def compress_layer(self, layer, index, num_layers, budget):
        return Dense().store(layer, Selection(self.indices.to(layer.keys.device), budget))


@dataclass
class Drops(Method):
    """Keeps all tokens of the prompt, and those at given indices after four decoded ones."""

    kept: object = None
    decode_compression: DecodeCompression = field(default_factory=lambda: DecodeCompression(every=4))

    def compress_layer(self, layer, index, num_layers, budget):
        return interval_layer(self.decode_compression, layer, budget, self.all, self.keep, Needs())

    def all(self, layer, budget):
        return Selection.everything(layer)

    def keep(self, state, target, seen):
        return self.kept


def compressed(method, model=None):
    return SharedPass(model or tiny_model(), prompt(40), FullPrefill(), Needs()).compress(method, 12)


@pytest.mark.parametrize(
    ("indices", "where"),
    [(TWICE, "5 after 5 in row 1"), (KEPT.flip(1), "10 after 11 in row 0"), (KEPT // 2, "0 after 0")],
)
def test_tokens_kept_twice_or_out_of_order_are_one_line(indices, where):
    line = rf"^Given.compress_layer made a Selection with {where}.* must ascend, each token once"
    with pytest.raises(UserError, match=line):
        compressed(Given(indices))
    assert compressed(Given(KEPT)).caches[0].kept.retained == 2 * 2 * 12


def test_on_a_gpu_only_what_is_not_kvbenchs_own_is_read():
    with FakeDevices():
        model = place(tiny_model(), gpus=1)
        with pytest.raises(UserError, match="5 after 5"):
            compressed(Given(TWICE), model)


def test_an_order_of_its_own_comes_with_a_histogram():
    layer = random_layer(n=40)
    ascending = Selection(KEPT, 12)
    assert Selection(KEPT.flip(1), 12, histogram=ascending.positions(layer)).positions(layer).text[0] == "Z"


@pytest.mark.parametrize("kept", [TWICE, KEPT - 1, KEPT + 33])
def test_a_rule_while_decoding_keeps_each_stored_token_once(kept):
    made = compressed(Drops(kept))
    line = r"^Drops.keep returned indices .* for 44 stored tokens: each must be from 0 to 43, and no row may have one"
    with pytest.raises(UserError, match=line):
        generate(tiny_model(), made.caches, made.logits, 8, frozenset())


@pytest.mark.parametrize(
    ("kept", "returned"), [(KEPT[0], r"torch.int64 \[12\]"), (KEPT.float(), r"torch.float32 \[2, 12\]")]
)
def test_a_rule_while_decoding_returns_indices_of_each_head(kept, returned):
    made = compressed(Drops(kept))
    with pytest.raises(UserError, match=rf"^Drops.keep returned {returned}: it must be int64 \[heads, k\], or None"):
        generate(tiny_model(), made.caches, made.logits, 8, frozenset())


def test_a_rule_while_decoding_may_have_an_order_of_its_own():
    made = compressed(Drops(KEPT.flip(1)))
    assert len(generate(tiny_model(), made.caches, made.logits, 8, frozenset()).tokens) == 8
    assert made.caches[0].triggers == 1
