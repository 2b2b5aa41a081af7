"""Ratios to FullKV in records of this version and of earlier ones."""

import math

import pandas as pd

from kvbench.records import load
from kvbench.records.ratios import means
from kvbench.records.schema import MethodRecord
from kvbench.utils.ratios import RATIOS
from tests.support import records as made_up
from tests.support.loaded_records import write


def test_every_ratio_is_a_field_of_records():
    assert set(RATIOS) <= set(MethodRecord.model_fields)


def test_means_over_records_and_nan_for_those_of_earlier_versions(tmp_path):
    new, old = made_up.record(), made_up.record(sample="s1")
    for name in [name for name in old if name.startswith("decode_b") or name in list(RATIOS)[2:]]:
        del old[name]
    write(tmp_path / "run", [new, old], made_up.manifest())
    frame = load(tmp_path / "run")
    assert len(frame) == 2 and means(frame)["r_mean"] == new["r_mean"]
    earlier = means(frame.drop(columns=list(RATIOS)[2:]))
    assert earlier["r_bytes"] == 0.2 and math.isnan(earlier["r_mean"])
    assert means(pd.DataFrame([new, {**new, "r_end": 0.4}]))["r_end"] == (0.2157 + 0.4) / 2
