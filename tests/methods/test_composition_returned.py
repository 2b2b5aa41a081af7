"""What a scoring, an allocation, head budgets and a storage of a user's return is checked: a mistake is one line."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool1d

from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods import Allocation, Chunks, Eviction, HeadBudgets, Scoring, Selection
from tests.support.tiny import random_layer


@dataclass
class Pooled(Scoring):
    """Votes smoothed without padding, or with too much of it: other tokens' scores."""

    window: int = 4
    padding: int = 0

    def votes(self, layer):
        return torch.arange(layer.n).float().expand(layer.num_attention_heads, -1)

    def smooth(self, votes):
        return avg_pool1d(votes[None], 5, stride=1, padding=self.padding)[0]


@dataclass
class Tokens(Allocation):
    given: object = None

    def tokens(self, budget, n, window, num_layers):
        return self.given


@dataclass
class Counts(HeadBudgets):
    given: object = None

    def counts(self, ranked, tokens, window, layer):
        return self.given


def select(**parts) -> Selection:
    parts = {"scoring": Pooled(padding=2), **parts}
    return Eviction(**parts).select(random_layer(4, 2, 40, 8), 0, 3, 12)


@pytest.mark.parametrize("scoring", [Pooled(), Chunks(base=Pooled())])
def test_smoothed_scores_of_fewer_tokens_are_refused(scoring):
    line = r"^Pooled.smooth returned torch.float32 \[2, 32\] for votes \[2, 36\]: it must be a floating-point tensor"
    with pytest.raises(UserError, match=line):
        select(scoring=scoring)
    assert select().indices.shape == (2, 12)


@pytest.mark.parametrize("given", [None, [12, 12], [12] * 4, [12.0] * 3, torch.tensor([12] * 3), 12])
def test_an_allocation_gives_each_layer_a_whole_number(given):
    with pytest.raises(
        UserError, match=r"^Tokens gave .*: it must give a whole number of tokens per head to each of 3"
    ):
        select(allocation=Tokens(given=given))


@pytest.mark.parametrize("given", [[12, 12, 12], (12, 12, 12), np.array([12] * 3)])
def test_sequences_of_whole_numbers_are_taken(given):
    assert select(allocation=Tokens(given=given)).indices.shape == (2, 12)


@pytest.mark.parametrize("given", [None, 8.0, [8, 8], torch.tensor([8.0, 8.0]), torch.tensor([8]), torch.tensor(8)])
def test_head_budgets_give_one_number_or_one_for_each_head(given):
    with pytest.raises(
        UserError, match=r"^Counts.counts returned .*: it must be one number for all heads, or int64 \[2\]"
    ):
        select(heads=Counts(given=given))


@pytest.mark.parametrize(("given", "counts"), [(8, [12, 12]), (torch.tensor([5, 11]), [9, 15])])
def test_numbers_of_heads_are_taken(given, counts):
    chosen = select(heads=Counts(given=given))
    assert (chosen.counts if chosen.ragged else [chosen.indices.shape[1]] * 2) == counts


@pytest.mark.parametrize("values", [torch.zeros(2, 12, 8), torch.zeros(1, 11, 8)])
def test_keys_and_values_of_other_tokens_are_refused(values):
    layer = random_layer(4, 2, 40, 8)
    with pytest.raises(UserError, match=r"^DenseLayer was given keys \[2, 11, 8\] and values "):
        DenseLayer(torch.zeros(2, 11, 8), values, 40, Selection.everything(layer).kept(layer))
