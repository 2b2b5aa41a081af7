"""scripts/results/predict_gpu.py: its formulas against cases that were computed by hand, and what its ranges hold."""

from dataclasses import asdict, fields, replace
from types import SimpleNamespace

import pytest

from scripts.results import predict_gpu
from scripts.results.prediction import assumptions, codebook, decoding, llama, prefill
from scripts.results.prediction.assumptions import DECODING, FAST, SLOW, Assumptions, between
from scripts.results.prediction.decoding import Step

COUNTS = {
    "presets": {
        "full": {"decode": {"operations": 60, "kernels": 42}, "compress": {"operations": 2, "kernels": 0}},
        "kivi": {"decode": {"operations": 66, "kernels": 41}, "compress": {"operations": 8, "kernels": 4}},
        "spindle": {"decode": {"operations": 57, "kernels": 43}, "compress": {"operations": 0, "kernels": 0}},
    },
    "twelve_settings": {"batch": {"operations": 54, "kernels": 40}},
    "search": {"spindle": {"operations": 3000, "kernels": 700, "tries": 3}},
}
HOST = {"generate_ms_per_token": 10.0, "ratio_median": {"full": 1.0, "kivi": 1.5, "full, 12 rows": 2.0}}
COVERS = {
    f"layer 3 {side}": {
        "vectors": 1600, "votes": 4.0, "late_votes": 0.5, "degree_bits": 10, "exact_tiles": 0.01, "rounds": 200
    }
    for side in ("keys", "values")
}  # fmt: skip


def test_a_decoded_token_reads_all_weights_but_the_embedding_table():
    """15.01 GB and 131,072 bytes for each token of 8,192: 208 tokens/s at 3.35 TB/s, as 3.35e12 / 16.08e9."""
    assert llama.WEIGHT_BYTES == 2 * (8.03e9 - 128256 * 4096) == pytest.approx(15.009e9, rel=1e-4)
    assert llama.cache_bytes(8192) == 8192 * 131072
    step = Step(42, (0.01, 0.01), (llama.cache_bytes(8192),))
    assert decoding.limit(step) == pytest.approx(208.3, abs=0.1)


def test_small_kernels_are_added_to_the_time_of_bytes():
    """42 kernels a layer, of which 8 are counted by bytes: 34 · 32 + 25 small ones of 2 µs are 2.226 ms."""
    assumed = replace(FAST, small_kernel=2e-6, weights=0.5, cache=0.25)
    step = Step(42, (0.0, 0.0), (3.35e9, 3.35e9))
    expected = llama.WEIGHT_BYTES / (0.5 * 3.35e12) + 0.008 + 0.002226
    assert decoding.seconds(step, "graph", assumed) == pytest.approx(expected)
    fused = decoding.seconds(step, "fused", replace(assumed, fused_kernels=9))
    assert fused == pytest.approx(expected - 30 * 32 * 2e-6)
    codes = decoding.seconds(step._replace(coded=True), "graph", replace(assumed, codes=0.5))
    assert codes == pytest.approx(expected - 0.004)


def test_eager_takes_the_longer_of_host_and_gpu():
    """The host: 10 ms of Python · 1.2 and 42 · 32 + 25 launches of 4 µs are 17.476 ms."""
    assumed = replace(FAST, host=1.2, launch=4e-6)
    step = Step(42, (0.01, 0.01), (1e9,))
    assert decoding.host_seconds(step, assumed) == pytest.approx(0.017476)
    assert decoding.seconds(step, "eager", assumed) == pytest.approx(0.017476)
    large = step._replace(row_bytes=(60e9,))
    assert decoding.seconds(large, "eager", assumed) == decoding.seconds(large, "graph", assumed) > 0.0175


def test_the_hosts_time_is_measured_or_follows_from_operations():
    assert decoding.host_range(60, 1.0, COUNTS, HOST) == (0.01, 0.01)
    assert decoding.host_range(57, None, COUNTS, HOST) == pytest.approx((0.0095, 0.0095))
    assert decoding.step_of("kivi", 0.375, 1000, 1, COUNTS, HOST).host == pytest.approx((0.011, 0.015))
    twelve = decoding.step_of("full", 1.0, 1000, 12, COUNTS, HOST)
    assert twelve.host == pytest.approx((0.009, 0.02)) and twelve.kernels == 40 and len(twelve.row_bytes) == 12
    step = Step(0, (0.01, 0.02), (1.0,))
    halfway = decoding.host_seconds(step, replace(FAST, host=1, launch=0, arithmetic=0.5))
    assert halfway == pytest.approx(0.015)


def test_what_the_memory_does_not_hold_is_not_predicted():
    known = predict_gpu.Known(COUNTS | {"presets": COUNTS["presets"] | {"snapkv": COUNTS["presets"]["full"]}}, HOST, {})
    found = predict_gpu.decoding(131072, 12, known)
    assert found["full"] is None and found["snapkv"]["limit"] == pytest.approx(715, abs=1)


def test_a_prompt_multiplies_no_embedding_and_chunks_attend_more_slowly():
    """2 · 6.979e9 · n for products, 2 · 32 · 32 · 128 · n² for causal attention."""
    n, assumed = 131072, replace(FAST, products=0.5, attention=0.5, chunked=0.25)
    products, attention = 2 * (8.03e9 - 2 * 128256 * 4096) * n, 2 * 32 * 32 * 128 * n**2
    half = 989e12 / 2
    assert prefill.prefill_seconds(n, assumed) == pytest.approx((products + attention) / half)
    first = attention / 64  # of 16,384 tokens, an eighth of the prompt
    chunked = (products + first + 2 * (attention - first)) / half
    assert prefill.prefill_seconds(n, assumed, 16384) == pytest.approx(chunked)
    assert prefill.prefill_seconds(8192, assumed, 16384) == prefill.prefill_seconds(8192, assumed)


def test_column_sums_are_two_products_of_queries_and_keys():
    n, assumed = 131072, replace(FAST, sums=0.25)
    product = 32 * 32 * 128 * n**2  # of 2 L H d n² the causal half
    assert prefill.sums_seconds(n, assumed, 1) == pytest.approx(product / (989e12 / 4))
    assert prefill.sums_seconds(n, assumed, 2) == 2 * prefill.sums_seconds(n, assumed, 1)


def test_compression_is_the_hosts_operations_and_the_codebook():
    """10 ms over 60 · 32 operations are 5.208 µs each."""
    known = predict_gpu.Known(COUNTS, HOST, COVERS)
    assumed = replace(FAST, host=1, launch=4e-6)
    assert predict_gpu.compress_seconds("kivi", 8192, known, assumed) == pytest.approx(32 * (8 / 192000 + 16e-6))
    groups = -(-32 // codebook.layers_at_once(1638))
    host = groups * (3000 / 192000 + 700 * 4e-6)
    found = predict_gpu.compress_seconds("spindle", 8192, known, assumed)
    assert found == pytest.approx(host + 3 * codebook.codebook_seconds(1638, COVERS, assumed))


def test_the_codebook_adds_similarities_votes_and_rounds(monkeypatch):
    """One layer at a time and peaks of 1: each term by itself, for 1,600 vectors of a head and 64 words."""
    monkeypatch.setattr(codebook, "layers_at_once", lambda kept: 1)
    for name in ("PEAK_FLOPS", "FLOPS64", "INT"):
        monkeypatch.setattr(codebook, name, 1.0)
    assumed = replace(FAST, codebook=1.0, pick=0.0, scan=0.0)
    pairs = 32 * 8 * 1600**2
    vote = 1600 * 64 * (30 + 10 * 5)
    similar = pairs * 128 * 3.01 + pairs / 2 * 20
    votes = 32 * 8 * 4 * vote + 32 * 1 * 0.5 * vote * 132
    assert codebook.codebook_seconds(1600, COVERS, assumed) == pytest.approx(2 * (similar + votes))
    picks = codebook.codebook_seconds(1600, COVERS, replace(assumed, pick=1e20, scan=1e18))
    assert picks == pytest.approx(2 * 32 * 200 * (4e20 + 3 * 1600e18), rel=1e-3)


def test_a_range_holds_every_combination():
    found = between(lambda assumed: assumed.products / assumed.attention, ("products", "attention"))
    assert found == (SLOW.products / FAST.attention, FAST.products / SLOW.attention)
    step = decoding.step_of("kivi", 0.375, 32768, 1, COUNTS, HOST)
    for engine in decoding.ENGINES:
        low, high = decoding.rates(step, engine)
        assert low < high < decoding.limit(step)
        for assumed in (FAST, SLOW, replace(SLOW, small_kernel=FAST.small_kernel)):
            assert low <= 1 / decoding.seconds(step, engine, assumed) <= high


def test_a_range_of_decoding_depends_on_no_assumption_that_it_leaves_out():
    class Watched(SimpleNamespace):
        def __getattribute__(self, name):
            if not name.startswith("__"):
                read.add(name)
            return super().__getattribute__(name)

    read: set[str] = set()
    for coded in (False, True):
        for engine in decoding.ENGINES:
            decoding.seconds(Step(42, (0.01, 0.02), (1e9,), coded), engine, Watched(**asdict(FAST)))
    assert read == set(DECODING)


def test_every_assumption_has_a_source_and_a_slow_value():
    names = [field.name for field in fields(Assumptions)]
    assert list(assumptions.SOURCES) == names and all(all(source) for source in assumptions.SOURCES.values())
    assert all(getattr(FAST, name) != getattr(SLOW, name) for name in names)
    assert len(assumptions.rows()) == 2 + len(names)
    named = assumptions.HOST, assumptions.DECODING, assumptions.PREFILL, assumptions.CODEBOOK
    assert {name for group in named for name in group} == set(names)


def test_the_prediction_in_the_repository_is_what_the_script_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["predict_gpu.py", "--out", str(tmp_path)])
    predict_gpu.main()
    for name in ("prediction.md", "prediction.json"):
        assert (tmp_path / name).read_text("utf-8") == (predict_gpu.OUT / name).read_text("utf-8")
    assert "does not fit" in capsys.readouterr().out
