"""Writes a GGUF file with the same model and no quantised weight: python -m scripts.results.plain_gguf IN OUT

An engine that turns quantised weights into a format of its own rounds them anew: OpenVINO GenAI 2026.4.1 does so with
Q4_1. Matrices are float16 and the rest is float32, since it reads no float32 matrices.
"""

from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

from scripts.frame import script_parser

F16, F32 = GGMLQuantizationType.F16, GGMLQuantizationType.F32
MOSTLY_F16 = 1  # general.file_type


def plain(source: Path, target: Path) -> None:
    """Write `target` with plain tensors, and the other fields of `source` as they are."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer has them
        kind, *inner = field.types
        value = MOSTLY_F16 if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, kind, inner[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        shape = tuple(int(length) for length in reversed(tensor.shape))  # gguf has the last axis first
        kind = F16 if len(shape) > 1 else F32
        values = dequantize(tensor.data, tensor.tensor_type).astype("float16" if kind == F16 else "float32")
        writer.add_tensor(tensor.name, values.reshape(shape), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("source", type=Path, metavar="IN")
    parser.add_argument("target", type=Path, metavar="OUT")
    options = parser.parse_args()
    plain(options.source, options.target)


if __name__ == "__main__":
    main()
