"""`triggers`: how often a record's method reduced its cache while decoding."""

import json

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
