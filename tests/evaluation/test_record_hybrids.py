"""Records of models with states of fixed size or shared keys and values."""

import pytest

from kvbench.evaluation.speed.measure import measure
from tests.evaluation.test_record_windows import FULL, SNAPKV, N, records
from tests.methods.test_base_hybrids import OTHERS, TOKEN
from tests.support.hybrids import hybrid_model
from tests.support.tiny import prompt

PLACES = {"qwen3_next": [1, 3, 5, 7], "gemma4_text": [1, 3, 5, 7]}


@pytest.mark.parametrize(("memory", "chunk"), [("shared", None), ("stream", None), ("stream", 16)])
@pytest.mark.parametrize("family", OTHERS)
def test_the_floor_is_what_layers_hold_that_no_method_compresses(tmp_path, family, memory, chunk):
    found = {}
    for setting in (FULL, SNAPKV):
        found |= records(tmp_path / setting.name, hybrid_model(family), [setting], memory, chunk)
    for record, kept in zip(found.values(), (N, 30), strict=True):
        others, full = OTHERS[family], 4 * N * TOKEN + OTHERS[family]
        assert record["window_bytes"] == others and record["full_bytes"] == full
        assert record.get("state_bytes", 0) == (others if family == "qwen3_next" else 0)
        assert record["stored_bytes"] == 4 * kept * TOKEN + others
        assert record["r_bytes"] == record["r"] == pytest.approx(record["stored_bytes"] / full)
        assert record["r_bytes_full"] == record["r_full"] == kept / N
        assert record["r_bytes_floor"] == others / full
        assert record["full_layers"] == PLACES[family] and record["kept_per_layer"] == [kept] * 4
        assert record["r_end"] == pytest.approx((4 * (kept + 8) * TOKEN + others) / (4 * (N + 8) * TOKEN + others))
    assert found["full"]["r_mean"] == found["full"]["r_read"] == found["full"]["r_end"] == 1


@pytest.mark.parametrize("family", OTHERS)
def test_speed_measures_a_batch_of_copies(family):
    one = measure(hybrid_model(family), prompt(N), SNAPKV, 3, 6)
    assert len(set(one.tokens)) == 1 and one.decode_steps == 5
    assert one.footprint.windows == OTHERS[family] and one.footprint.full == 4 * N * TOKEN + OTHERS[family]
    assert one.footprint.states == (OTHERS[family] if family == "qwen3_next" else 0)
    assert one.footprint.kept == 4 * 30 * TOKEN + OTHERS[family]
