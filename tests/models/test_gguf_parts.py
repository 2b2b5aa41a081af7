"""A GGUF file in parts is the whole one."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType
from gguf.quants import quantize

from kvbench.errors import UserError
from kvbench.models.gguf_parts import join, name_without_part, parts_of
from tests.support.gguf_files import fields_of, write

WHOLE = {
    "llama.block_count": (2, GGUFValueType.UINT32),
    "llama.rope.freq_base": (10000.5, GGUFValueType.FLOAT32),
    "general.name": ("a file", GGUFValueType.STRING),
    "tokenizer.ggml.tokens": (["a", "é", "b c"], GGUFValueType.ARRAY, GGUFValueType.STRING),
    "tokenizer.ggml.token_type": ([1, 3, 1], GGUFValueType.ARRAY, GGUFValueType.INT32),
    "tokenizer.ggml.add_bos_token": (False, GGUFValueType.BOOL),
}


@pytest.fixture
def whole(tmp_path):
    """A file with fields of several types, and tensors of whole numbers, in 16 bits and in blocks of four bits."""
    draw = np.random.default_rng(0)
    kinds = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.Q4_1)
    tensors = [
        (f"blk.{number}.weight", quantize(draw.normal(size=(4, 64)).astype(np.float32), kind), kind)
        for number, kind in enumerate(kinds * 2)
    ]
    return write(tmp_path / "source.gguf", WHOLE, tensors)


def split(source, folder, count):
    """A file in `count` parts, as llama-gguf-split writes them: fields in the first, tensors in turn."""
    reader = GGUFReader(source)
    size = -(-len(reader.tensors) // count)
    for number in range(count):
        path = folder / f"it-{number + 1:05}-of-{count:05}.gguf"
        fields = fields_of(reader) if not number else {}
        fields |= {"split.no": (number, GGUFValueType.UINT16), "split.count": (count, GGUFValueType.UINT16)}
        tensors = reader.tensors[number * size : (number + 1) * size]
        write(path, fields, [(tensor.name, tensor.data, tensor.tensor_type) for tensor in tensors])
    return path


def test_joined_parts_have_the_fields_and_tensors_of_the_whole(whole, tmp_path):
    parts = parts_of(split(whole, tmp_path, 3))
    assert [part.name[3:8] for part in parts] == ["00001", "00002", "00003"]
    source, joined = GGUFReader(whole), GGUFReader(join(parts, tmp_path / "whole.gguf"))
    assert fields_of(joined) == fields_of(source) == WHOLE
    assert joined.fields["general.architecture"].contents() == "llama"
    assert [tensor.name for tensor in joined.tensors] == [tensor.name for tensor in source.tensors]
    for one, other in zip(joined.tensors, source.tensors, strict=True):
        assert one.tensor_type == other.tensor_type and np.array_equal(one.data, other.data)


def test_a_missing_part_is_named(tmp_path):
    path = tmp_path / "it-00002-of-00003.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"one of 3 parts, and it-00001-of-00003\.gguf is not beside it"):
        parts_of(path)
    assert name_without_part(path) == "it"
    assert parts_of(tmp_path / "whole.gguf") == [tmp_path / "whole.gguf"]
