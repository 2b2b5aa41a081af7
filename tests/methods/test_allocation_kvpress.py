"""alloc=kvpress gives the tokens per layer that kvpress 0.5.5 gives (see scripts/compare/kvpress_parity.py)."""

import pytest

from kvbench.methods import Pyramid


@pytest.mark.parametrize(
    "n, budget, window, beta, expected",
    [
        (1000, 500, 8, 20, [975, 785, 595, 405, 215, 25]),
        (300, 270, 8, 3, [292, 277, 263, 248]),  # the bottom layer has no more than n - window to select from
        (2000, 1200, 64, 20, [1936, 1568, 1200, 832, 464]),
        (2000, 400, 64, 20, [400] * 5),  # the top layer's share would not hold the window
        (200, 198, 64, 20, [198] * 5),  # nor may it exceed the bottom layer's
    ],
)
def test_tokens_per_layer_are_kvpress(n, budget, window, beta, expected):
    assert Pyramid(beta=beta, alloc="kvpress").tokens(budget, n, window, len(expected)) == expected
