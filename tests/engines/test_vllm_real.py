"""The real vLLM: `make engine-vllm`, then `make test-engines`."""

import pytest
import torch

from kvbench.engines.worker import python_of
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.needs import need
from tests.support.runs import run

pytestmark = [pytest.mark.engines, pytest.mark.heavy]
NEEDLE = ["benchmark=niah", "benchmark.lengths=[400]", "benchmark.depths=[50]"]
VLLM = ["engine=vllm", "engine.threads=1", "engine.context=1024"]
HAS_FP8 = "AVX512" in torch.backends.cpu.get_cpu_capability()  # vLLM's condition on a CPU, or AMX
TYPES = f"engine.kv_cache_dtype={'[auto,fp8]' if HAS_FP8 else '[auto]'}"


@pytest.fixture(autouse=True)
def installed():
    try:
        python_of(None, ".venv-vllm", "")
    except UserError as error:
        need("vllm", str(error))


def test_vllm_finds_the_needle_under_its_types_as_fullkv_does(tmp_path):
    folder = run(*NEEDLE, "method=full", f"output_dir={tmp_path}")
    assert run(*NEEDLE, *VLLM, TYPES, "distance=true", f"output_dir={tmp_path}") == folder
    full, auto, *quantised = (row for _, row in load(folder).iterrows())
    assert auto.tokens == full.tokens and auto.prompt_tokens == full.prompt_tokens
    elements = 30 * 3 * 64
    assert auto.stated_bytes == full.prompt_tokens * elements * 2 * 4
    assert auto.repeated["equal"] and auto.distance["top1"] == 1
    for row in (auto, *quantised):
        assert row.scores["exact"] == 1 and row.reported_bytes > row.stated_bytes
    for fp8 in quantised:
        assert 4 * fp8.stated_bytes == auto.stated_bytes and 0 < fp8.distance["kl_at_least"] < 0.5


def test_the_perplexity_of_a_text_is_fullkvs_and_a_prompt_reads_the_quantised_cache(window):
    folder = run(*window, "method=full")
    assert run(*window, *VLLM, TYPES) == folder
    full, auto, *quantised = load(folder)["distance"]
    assert auto["nll"] == pytest.approx(full["nll"], abs=1e-3)
    assert auto["bits_per_byte"] == pytest.approx(full["bits_per_byte"], abs=1e-3)
    for fp8 in quantised:
        assert abs(fp8["nll"] - auto["nll"]) > 1e-3 and fp8["kl_at_least"] > 1e-3


def test_a_type_that_it_refuses_is_told_in_its_words(tmp_path):
    with pytest.raises(UserError, match=r"^vllm fp9: .*should be 'auto'"):
        run(*NEEDLE, *VLLM, "engine.kv_cache_dtype=fp9", f"output_dir={tmp_path}")
    if not HAS_FP8:
        with pytest.raises(UserError, match=r"^vllm fp8: FP8 KV cache on CPU requires"):
            run(*NEEDLE, *VLLM, "engine.kv_cache_dtype=fp8", f"output_dir={tmp_path}")
