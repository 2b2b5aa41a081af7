"""Records of methods that reduce their cache while decoding: how often (`triggers`), and the most bytes held."""

import json

import pytest

from kvbench.evaluation.settings import Setting
from kvbench.methods import DecodeCompression, Eviction, KNorm
from tests.evaluation.test_record_windows import FULL, N, records
from tests.support.tiny import tiny_model


def every(passes: int, budget: int | None = None, **options) -> Setting:
    when = DecodeCompression(every=passes, budget=budget, **options)
    return Setting(
        f"knorm {passes}",
        Eviction(scoring=KNorm(), decode_compression=when),
        json.dumps({"when": str(when)}),
        ratio=0.3,
    )


def test_reductions_are_counted_in_passes_and_missing_where_there_are_none(tmp_path):
    settings = [FULL, every(1), every(3), every(4, prompt="whole"), every(50), every(2, budget=2 * N)]
    made = records(tmp_path, tiny_model(num_layers=2), settings)
    found = [made[setting.label] for setting in settings]
    assert [record["decode_steps"] for record in found] == [8] * 6  # 9 tokens
    # the last one's budget is more than prompt and answer
    assert [record.get("triggers") for record in found] == [None, 8, 2, 2, 0, 0]


@pytest.mark.parametrize("memory", ["stream", "shared"])
def test_a_cache_that_was_cut_had_its_most_bytes_before(tmp_path, memory):
    """The whole prompt stays until the fourth pass; `shared` holds it a second time beside its settings."""
    (record,) = records(tmp_path, tiny_model(num_layers=2), [every(4, prompt="whole")], memory).values()
    whole = record["full_bytes"]
    assert record["decode_bytes_end"] < record["decode_bytes_peak"] == whole * (N + 4) // N
    assert record["peak_cache_bytes"] == record["decode_bytes_peak"] + (whole if memory == "shared" else 0)
