"""The real vLLM: `make engine-vllm`, then `make test-engines`."""

import pytest

from kvbench.engines.worker import python_of
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.needs import need
from tests.support.runs import run

pytestmark = [pytest.mark.engines, pytest.mark.heavy]
NEEDLE = ["benchmark=niah", "benchmark.lengths=[400]", "benchmark.depths=[50]"]
VLLM = ["engine=vllm", "engine.threads=1", "engine.context=1024"]


@pytest.fixture(autouse=True)
def installed():
    try:
        python_of(None, ".venv-vllm", "")
    except UserError as error:
        need("vllm", str(error))


def test_vllm_finds_the_needle_under_its_types_as_fullkv_does(tmp_path):
    folder = run(*NEEDLE, "method=full", f"output_dir={tmp_path}")
    types = ["engine.kv_cache_dtype=[auto,fp8]", "distance=true", f"output_dir={tmp_path}"]
    assert run(*NEEDLE, *VLLM, *types) == folder
    full, auto, fp8 = (row for _, row in load(folder).iterrows())
    assert auto.tokens == full.tokens and auto.prompt_tokens == full.prompt_tokens
    assert auto.scores["exact"] == fp8.scores["exact"] == 1
    elements = 30 * 3 * 64
    assert auto.stated_bytes == 4 * fp8.stated_bytes == full.prompt_tokens * elements * 2 * 4
    assert auto.reported_bytes > auto.stated_bytes and fp8.reported_bytes > fp8.stated_bytes
    assert auto.repeated["equal"] and auto.distance["top1"] == 1 and 0 < fp8.distance["kl_at_least"] < 0.5


def test_the_perplexity_of_a_text_is_fullkvs_and_a_prompt_reads_the_quantised_cache(window):
    folder = run(*window, "method=full")
    assert run(*window, *VLLM, "engine.kv_cache_dtype=[auto,fp8]") == folder
    full, auto, fp8 = load(folder)["distance"]
    assert auto["nll"] == pytest.approx(full["nll"], abs=1e-3)
    assert auto["bits_per_byte"] == pytest.approx(full["bits_per_byte"], abs=1e-3)
    assert abs(fp8["nll"] - auto["nll"]) > 1e-3 and fp8["kl_at_least"] > 1e-3


def test_a_type_that_it_refuses_is_told_in_its_words(tmp_path):
    with pytest.raises(UserError, match=r"^vllm fp9: .*should be 'auto'"):
        run(*NEEDLE, *VLLM, "engine.kv_cache_dtype=fp9", f"output_dir={tmp_path}")
