"""Records of a model with sliding windows: what counts all layers, and what the compressed ones alone."""

import pytest

from kvbench.benchmarks.base import Sample
from kvbench.errors import UserError
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.methods import Eviction, FullKV, WindowAttention
from kvbench.models import ModelSpec
from kvbench.records.store import Store
from tests.evaluation.test_prefill_passes import Letters, Words
from tests.support.sliding import WINDOW, sliding_model
from tests.support.tiny import tiny_model

SNAPKV = Setting("snapkv", Eviction(scoring=WindowAttention(window=8)), '{"s": 1}', ratio=0.3)
FULL = Setting("full", FullKV(), '{"f": 1}')
TOKEN = 2 * 2 * 32 * 4
N = 100


def records(tmp_path, model, settings, memory="shared", chunk=None, n=N):
    loaded = Letters(model, ModelSpec(name="tiny", max_length=400, embedded="none"))
    run = Run("run", "identity", loaded, Words(), settings, memory, chunk=chunk)
    sample = Sample(id="a", prompt="x" * n, answers=("y",), max_new_tokens=9, meta={})
    with Store(tmp_path / "records") as store:
        return {record["setting"]: record for record in evaluate(run, [sample], store)}


@pytest.mark.parametrize(("memory", "chunk"), [("shared", None), ("shared", 16), ("stream", None), ("stream", 16)])
def test_ratios_are_of_all_layers_and_of_the_compressed_ones(tmp_path, memory, chunk):
    for setting in (FULL, SNAPKV):
        (record,) = records(tmp_path / setting.name, sliding_model("gemma3"), [setting], memory, chunk).values()
        kept = N if setting is FULL else 30
        windows, full = 4 * (WINDOW - 1) * TOKEN, 2 * N * TOKEN + 4 * (WINDOW - 1) * TOKEN
        assert record["window_bytes"] == windows and record["full_bytes"] == full
        assert record["stored_bytes"] == 2 * kept * TOKEN + windows
        assert record["r"] == record["r_bytes"] == pytest.approx(record["stored_bytes"] / full)
        assert record["r_full"] == record["r_bytes_full"] == record["r1"] == kept / N
        assert record["r_bytes_floor"] == windows / full
        assert record["full_layers"] == [2, 5] and record["kept_per_layer"] == [kept, kept]
        assert len(record["kept_positions"]) == 2 and not record["floored"]
        assert record["r_end"] == (2 * (kept + 8) + 4 * (WINDOW - 1)) / (2 * (N + 8) + 4 * (WINDOW - 1))
        if memory == "stream":  # one prompt in one layer, what is compressed, and the windows
            assert record["peak_cache_bytes"] <= (N + 2 * (kept + 64)) * TOKEN + 4 * (WINDOW + 64) * TOKEN


def test_records_of_a_model_without_windows_have_none_of_these_fields(tmp_path):
    record = records(tmp_path, tiny_model(num_layers=2), [SNAPKV])["snapkv 0.3"]
    assert not {"window_bytes", "r_full", "r_bytes_full", "r_bytes_floor", "full_layers"} & set(record)


def test_a_prompt_that_fills_every_window_is_no_prompt_within_them(tmp_path):
    """FullKV's bytes were of one token less than what methods had compressed: r_bytes was above r, and above 1."""
    record = records(tmp_path, sliding_model("mistral"), [FULL], n=WINDOW)["full"]
    assert record["full_layers"] == [] and record["window_bytes"] == record["full_bytes"]
    assert record["full_bytes"] == 6 * (WINDOW - 1) * TOKEN


def test_where_every_layer_slides_fullkv_is_recorded_and_others_are_refused(tmp_path):
    record = records(tmp_path, sliding_model("mistral"), [FULL])["full"]
    assert record["r"] == record["r_bytes"] == record["r_mean"] == record["r_bytes_floor"] == 1
    assert record["full_layers"] == record["kept_per_layer"] == []
    with pytest.raises(UserError, match=r"snapkv 0.3 has nothing to compress: every layer .* a sliding window"):
        records(tmp_path / "more", sliding_model("mistral"), [SNAPKV])
