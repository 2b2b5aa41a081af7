"""What verify says of the figures of decoding that honest runs record."""

import pytest

from kvbench.runner.verify.check_decoding import decoding_fits
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.verdict import Verdict
from tests.evaluation.test_record_windows import FULL, SNAPKV, WINDOW, N, records
from tests.support.hybrids import hybrid_model
from tests.support.sliding import sliding_model


@pytest.mark.parametrize("chunk", [7, 10])
def test_layers_of_chunks_that_a_prompt_leaves_empty_are_not_called_wrong(tmp_path, chunk):
    """Of a prompt that ends with a chunk nothing is left in layers of chunks, which then hold tokens of the answer."""
    made = records(tmp_path, hybrid_model("llama4_text", attention_chunk_size=chunk), [FULL, SNAPKV])
    assert all(("window_bytes" in record) == bool(N % chunk) for record in made.values())
    check = decoding_fits(read(tmp_path / "records"))
    assert check.verdict is Verdict.UNPROVEN


def test_an_answer_that_fills_the_windows_of_every_layer_is_not_called_wrong(tmp_path):
    """The prompt fits them, so that its record is that of a model without windows."""
    record = records(tmp_path, sliding_model("mistral"), [FULL], n=WINDOW - 4)["full"]
    assert "full_layers" not in record and record["r_mean"] == record["r_end"] == 1
    assert decoding_fits(read(tmp_path / "records")).verdict is Verdict.UNPROVEN
