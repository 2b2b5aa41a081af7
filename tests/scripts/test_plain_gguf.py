"""A quantised GGUF file and its plain copy hold the same model."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from scripts.results.plain_gguf import F16, F32, MOSTLY_F16, plain

TOKENS = ["a", "b", "ü"]


@pytest.fixture
def source(tmp_path):
    writer = GGUFWriter(tmp_path / "quantised.gguf", "llama")
    writer.add_file_type(3)
    writer.add_block_count(2)
    writer.add_token_list(TOKENS)
    matrix = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    writer.add_tensor("a.weight", quantize(matrix, GGMLQuantizationType.Q4_1), raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("a_norm.weight", matrix[0])
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    return tmp_path / "quantised.gguf"


def test_the_copy_has_the_same_values_and_fields(source, tmp_path):
    plain(source, tmp_path / "plain.gguf")
    before, after = GGUFReader(source), GGUFReader(tmp_path / "plain.gguf")
    assert [one.name for one in after.tensors] == [one.name for one in before.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert new.shape.tolist() == old.shape.tolist()
        assert new.tensor_type == (F16 if len(new.shape) > 1 else F32)
        values = dequantize(old.data, old.tensor_type)
        assert np.array_equal(new.data, values.astype(new.data.dtype)) and np.abs(new.data - values).max() < 2e-3
    told = {name: field.contents() for name, field in after.fields.items() if not name.startswith("GGUF.")}
    assert told == {
        name: MOSTLY_F16 if name == "general.file_type" else field.contents()
        for name, field in before.fields.items()
        if not name.startswith("GGUF.")
    }
    assert told["tokenizer.ggml.tokens"] == TOKENS and told["llama.block_count"] == 2
