"""The real llama.cpp: `make engines`, then `make test-engines`."""

import pytest

from kvbench.engines.worker import python_of
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.needs import need
from tests.support.runs import run

pytestmark = [pytest.mark.engines, pytest.mark.heavy]
NEEDLE = ["benchmark=niah", "benchmark.lengths=[400]", "benchmark.depths=[50]"]


@pytest.fixture(autouse=True)
def installed():
    try:
        python_of(None, ".venv-llama", "")
    except UserError as error:
        need("llama.cpp", str(error))


def test_llama_cpp_finds_the_needle_under_its_types(tmp_path):
    types = ["engine.k=[f16,q8_0]", "engine.threads=1", "distance=true"]
    records = load(run(*NEEDLE, "engine=llama_cpp", *types, f"output_dir={tmp_path}"))
    assert records["scores"].map(lambda scores: scores["exact"] == 1).all()
    f16, q8 = (row for _, row in records.iterrows())
    elements = 30 * 3 * 64
    assert f16.reported_bytes == 8192 * elements * 4  # the whole context in f16
    assert (f16.stated_bytes, q8.stated_bytes) == (
        f16.prompt_tokens * elements * 4,
        round(f16.prompt_tokens * elements * 17 / 8),
    )
    assert abs(q8.reported_bytes / (8192 * elements * 17 / 8) - 1) < 1e-3  # llama.cpp prints two digits
    assert q8.distance["top1"] > 0.8 and 0 <= q8.distance["kl_at_least"] < 0.5
    assert f16.repeated["equal"] and q8.repeated["equal"]


def test_the_perplexity_of_a_text_is_fullkvs_but_for_its_arithmetic_and_its_types(window):
    folder = run(*window, "method=full")
    assert run(*window, "engine=llama_cpp", "engine.k=[f16,q4_0]", "engine.threads=1", "engine.top=20") == folder
    full, f16, q4 = load(folder)["distance"]
    assert abs(f16["nll"] - full["nll"]) < 0.1 < full["nll"]  # it multiplies quantised weights in formats of its own
    assert f16["nll"] / f16["bits_per_byte"] == pytest.approx(full["nll"] / full["bits_per_byte"])
    assert f16["top1"] == 1 and q4["kl_at_least"] > 1e-3 and abs(q4["nll"] - f16["nll"]) > 1e-4


def test_four_bits_without_rotation_are_further_from_f16(window):
    own = ["engine=llama_cpp", "engine.k=[f16,q4_0]", "engine.threads=1", "engine.top=20"]
    run(*window, *own)
    _, rotated, plain = load(run(*window, *own, "engine.rotation=false"))["distance"]
    assert plain["kl_at_least"] > 1.2 * rotated["kl_at_least"] > 0


def test_another_models_file_is_refused(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"llama_cpp f16/f16: .*(failed to load|gguf)"):
        run(*NEEDLE, "engine=llama_cpp", f"engine.model_file={tmp_path}/bad.gguf", f"output_dir={tmp_path}/runs")
