"""GGUF files in parts, as llama-gguf-split writes them: NAME-00001-of-00003.gguf and its siblings."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvbench.errors import UserError

_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
OF_PARTS = "split."  # prefix of the fields that number a part
OF_WRITER = ("GGUF.", "general.architecture")  # fields that GGUFWriter writes itself


def name_without_part(path: Path) -> str:
    """A file's name without its suffix, and without the number of its part."""
    return _PART.sub("", path.stem)


def parts_of(path: Path) -> list[Path]:
    """All parts, in order, of the file of which `path` is a part; a whole file is its only part.

    Raises UserError if a part is missing.
    """
    part = _PART.search(path.stem)
    if part is None:
        return [path]
    count, name = int(part[2]), name_without_part(path)
    parts = [path.with_name(f"{name}-{number:05}-of-{part[2]}.gguf") for number in range(1, count + 1)]
    if missing := [other.name for other in parts if not other.is_file()]:
        raise UserError(f"{path.name} is one of {count} parts, and {missing[0]} is not beside it")
    return parts


def join(parts: Sequence[Path], whole: Path) -> Path:
    """Write all parts as one file: the fields of the first, and the stored tensors of each.

    Raises UserError for a tensor that two parts have.
    """
    from gguf import GGUFReader, GGUFWriter

    readers = [GGUFReader(part) for part in parts]
    fields = readers[0].fields
    architecture = fields["general.architecture"].contents()
    writer = GGUFWriter(whole, str(architecture))
    for name, field in fields.items():
        if not name.startswith((OF_PARTS, *OF_WRITER)):
            kind, *inner = field.types
            value: Any = field.contents()
            writer.add_key_value(name, value, kind, inner[-1] if inner else None)
    placed: dict[str, Path] = {}
    for part, reader in zip(parts, readers, strict=True):
        for tensor in reader.tensors:
            if (other := placed.setdefault(tensor.name, part)) != part:
                raise UserError(f"{part.name} and {other.name} both have the tensor {tensor.name}: is one a copy?")
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return whole
