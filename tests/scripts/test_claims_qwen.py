"""scripts/results/claims_qwen.py: claims by pairs of methods at equal bytes on the same samples."""

import pandas as pd
import pytest

from scripts.results.claims_qwen import ALIKE, compared, table

SAMPLES = 40


def rows(spindle: list[float], snapkv: list[float], size: float = 0.1) -> dict[str, dict]:
    """What `compared` says of SpindleKV and SnapKV with these scores, by claim."""
    scores = {"full": (1.0, [1.0] * SAMPLES), "spindle": (size, spindle), "snapkv": (0.1, snapkv)}
    records = pd.DataFrame(
        {"sample": str(n), "unit": f"text {n}", "method": name, "setting": name, "r_bytes": share}
        | {"scores": {"digits": score}}
        for name, (share, values) in scores.items()
        for n, score in enumerate(values)
    )
    return {row["claim"]: row for row in compared("visible_4k", records, "digits")}


@pytest.mark.parametrize(
    ("spindle", "snapkv", "verdict"),
    [
        ([1.0] * 40, [0.0] * 30 + [1.0] * 10, "holds"),
        ([0.0] * 30 + [1.0] * 10, [1.0] * 40, "does not hold"),
        ([1.0] * 38 + [0.0] * 2, [0.0] * 3 + [1.0] * 37, "cannot be told"),
        ([1.0] * 40, [0.0] + [1.0] * 39, ALIKE),
    ],
)
def test_a_claim_holds_by_the_interval_of_the_difference(spindle, snapkv, verdict):
    (row,) = rows(spindle, snapkv).values()
    assert row["claim"] == "spindle above snapkv" and row["verdict"] == verdict
    assert (row["low"] > 0, row["high"] < 0) == (verdict == "holds", verdict == "does not hold")
    assert len(table([row], "a model").rows) == (verdict != ALIKE)


def test_methods_are_compared_at_bytes_near_the_same_target_alone():
    assert not rows([1.0] * 40, [0.0] * 40, size=0.06)
