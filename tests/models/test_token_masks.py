"""Which masks of tokens say nothing that attention over a cache does not do by itself."""

import pytest
import torch

from kvbench.models.token_masks import is_causal

CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()
NEAR = CAUSAL & ~torch.ones(6, 6, dtype=torch.bool).tril(-3)  # a window of three


LOWEST = torch.finfo(torch.float32).min


def as_bias(mask, hidden=LOWEST):
    return torch.zeros(mask.shape).masked_fill(~mask, hidden)


@pytest.mark.parametrize("make", [lambda mask: mask, as_bias, lambda mask: as_bias(mask, float("-inf"))])
def test_a_causal_mask_is_one_in_numbers_as_in_truth_values(make):
    assert is_causal(make(CAUSAL), 6, None)
    assert is_causal(make(CAUSAL)[-2:], 6, None)  # of the last two tokens
    assert is_causal(make(torch.nn.functional.pad(CAUSAL, (0, 3))), 6, None)  # with room for three
    assert is_causal(make(NEAR), 6, 3) and is_causal(make(CAUSAL), 6, 3)
    assert is_causal(make(NEAR)[-1:, 3:], 6, 3)  # of the last keys


def test_a_mask_that_hides_an_earlier_token_or_shows_a_later_one_is_not():
    for place in ((4, 1), (2, 4)):
        other = CAUSAL.clone()
        other[place] = ~other[place]
        assert not is_causal(other, 6, None) and not is_causal(as_bias(other), 6, None)
    assert not is_causal(NEAR, 6, None)


def test_a_bias_is_no_causal_mask():
    assert not is_causal(as_bias(CAUSAL) - torch.rand(6, 6), 6, None)
