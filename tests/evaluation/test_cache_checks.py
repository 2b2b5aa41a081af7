"""What a cache holds beside what it lists: the same rule for every cache, kvbench's own included."""

import pytest
import torch

from kvbench.evaluation.cache_checks import RuleBroken, check_bytes
from kvbench.methods import Selection
from tests.plugin_example.kvbench_example.rounded_values import RoundedLayer, RoundedValues
from tests.support.every_method import N, state


def cache() -> RoundedLayer:
    layer = state(N).layers[0]
    return RoundedValues().store(layer, Selection.everything(layer))


def test_a_tensor_that_is_nowhere_listed_is_found():
    made = cache()
    check_bytes([made])
    made.table = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(RuleBroken, match="8 bytes that tensors"):
        check_bytes([made])


def test_a_few_numbers_for_each_head_may_be_declared():
    made = cache()
    made.table = torch.zeros(2, 3, dtype=torch.int32)
    made.index_tables = lambda: [made.table]
    check_bytes([made])


def test_numbers_for_each_token_may_not():
    made = cache()
    made.table = torch.zeros(N, dtype=torch.int32)
    made.index_tables = lambda: [made.table]
    with pytest.raises(RuleBroken, match="480 bytes: more than a few numbers for each head"):
        check_bytes([made])
