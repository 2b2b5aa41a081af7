"""Every press of kvpress through kvbench."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.integrations.kvpress import presses
from kvbench.integrations.kvpress.method import KVPress
from kvbench.models import ModelSpec
from kvbench.models import load as load_model
from kvbench.prefill import Needs
from kvbench.records import load
from tests.support.presses import PARTS, guest, method
from tests.support.runs import reported


@guest
def test_every_press_takes_a_ratio_or_says_that_it_cannot():
    inner = {
        "press": "KnormPress",
        "presses": ["KnormPress"],
        "compression_ratios": [0.5] * 30,
        "base_press": "KnormPress",
    }
    asked, own, refused = set(), set(), set()
    for name in presses.names():
        allowed = presses.inspect.signature(getattr(presses.kvpress(), name)).parameters
        try:
            guest = KVPress(name, {key: value for key, value in inner.items() if key in allowed})
        except UserError as error:
            assert "acts while decoding" in str(error)
            refused.add(name)
            continue
        (asked if guest.takes_budget else own).add(name)
    assert {"ExpectedAttentionPress", "SnapKVPress", "AdaKVPress", "KVzipPress", "ChunkKVPress"} <= asked
    assert own == {
        *("ComposedPress", "DMSPress", "DuoAttentionPress", "PerLayerCompressionPress", "SimLayerKVPress", "ThinKPress")
    }
    assert refused == {"CAMPress", "CompressionRatioDecodingPress", "DecodingPress", "PrefillDecodingPress"}


# Learned heads, statistics and patterns belong to some published model, and come from the network.
BOUND = {"DuoAttention", "ExpectedAttentionStats", "FastKVzip", "Finch", "KVzap", "LUKV", "QFilter", "RestoreKV"}


@guest
def test_every_press_runs_that_needs_no_model_of_its_own(tiny_folder):
    loaded = load_model(ModelSpec(name="tiny", max_length=4096, path=str(tiny_folder)))
    n = 160
    ids = torch.randint(3, 900, (n,), generator=torch.Generator().manual_seed(0))
    full = 3 * 2 * 2 * n * 8 * 4
    stored, refused = {}, set()
    for name in presses.names():
        attention = "eager" if name == "ObservedAttentionPress" else "sdpa"
        try:
            guest = KVPress(name, PARTS.get(name), attention)
            budget = n // 2 if guest.takes_budget else n
            compressed = SharedPass(loaded.model, ids, guest.plan(n, 3, budget), Needs()).compress(guest, budget)
        except UserError:
            refused.add(name.removesuffix("Press"))
            continue
        assert compressed.full_bytes == full
        assert compressed.peak_bytes < 3 * full
        stored[name] = sum(cache.nbytes for cache in compressed.caches) / full
        generate(loaded.model, compressed.caches, compressed.logits, 4, frozenset())
    assert refused >= {"CAM", "CompressionRatioDecoding", "Decoding", "PrefillDecoding"}
    assert refused <= {"CAM", "CompressionRatioDecoding", "Decoding", "PrefillDecoding", *BOUND}
    assert stored.pop("ThinKPress") == 1.0
    assert stored.pop("PerLayerCompressionPress") == (80 + 128 + 31) / (3 * n)  # kvpress rounds 160 × (1 − 0.8) down
    assert stored.pop("SimLayerKVPress") == (4 + 63) / n
    assert 0 < stored.pop("DMSPress") < 1
    assert stored.pop("ChunkKVPress") == pytest.approx(0.5, abs=0.07)  # whole chunks
    assert stored == pytest.approx(dict.fromkeys(stored, 0.5), abs=0.01)
    assert len(stored) >= 27


@guest
def test_a_run_has_presses_beside_methods_in_one_table(tiny_folder, tmp_path):
    folder = reported(
        f"model.path={tiny_folder}",
        "model.shape=null",
        "model.max_length=4096",
        "benchmark.lengths=[320]",
        "benchmark.depths=[50]",
        "benchmark.max_new_tokens=4",
        f"output_dir={tmp_path}",
        "method=[full,streaming_llm,kvpress]",
        "press=StreamingLLMPress",
        "+method@method.ada_snapkv=kvpress",
        "method.ada_snapkv.press=AdaKVPress",
        "method.ada_snapkv.press_args={press: {SnapKVPress: {window_size: 8}}}",
        "ratio=[0.3,0.6]",
        "question=hidden",
    )
    records = load(folder).set_index("setting")
    assert set(records.index) == {
        *("full", "streaming_llm 0.3", "streaming_llm 0.6", "StreamingLLMPress 0.3", "StreamingLLMPress 0.6"),
        *("ada_snapkv 0.3", "ada_snapkv 0.6"),
    }
    for ratio in ("0.3", "0.6"):
        named = ("streaming_llm", "StreamingLLMPress", "ada_snapkv")
        ours, theirs, ada = (records.loc[f"{name} {ratio}"] for name in named)
        assert theirs["prediction"] == ours["prediction"]
        assert theirs["stored_bytes"] == ours["stored_bytes"] == ada["stored_bytes"]
        assert theirs["kept_per_layer"] == ours["kept_per_layer"]
        assert theirs["question_tokens"] > 0
    table = (folder / "table.md").read_text()
    assert "StreamingLLMPress" in table
    assert "ada_snapkv" in table


@guest
def test_names_in_tables_tell_the_presses():
    assert method("press=AdaKVPress", "press_args={press: {SnapKVPress: {window_size: 8}}}").title("kvpress") == (
        "AdaKVPress(SnapKVPress)"
    )
    assert method("press=KnormPress").title("kvpress") == "KnormPress"
    assert method("press=KnormPress").title("mine") == "mine"
    with pytest.raises(UserError, match=r"method\.adakv would be a press under the name of kvbench's 'adakv'"):
        method("press=KnormPress").title("adakv")  # tables showed it as AdaKV
