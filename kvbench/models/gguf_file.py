"""GGUF files, converted once to safetensors in the layout of the hub."""

from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from kvbench.errors import UserError, on_disk
from kvbench.models.complete import check_complete
from kvbench.models.gguf_parts import join, name_without_part, parts_of
from kvbench.utils.console import warn
from kvbench.utils.files import appearing, cache_root, write_atomically
from kvbench.utils.hashing import file_hash
from kvbench.utils.regular_files import is_special
from kvbench.utils.text import first_line

MOVES = " (KVBENCH_CACHE=FOLDER moves it)"
MAGIC = b"GGUF"
CONVERSION = 2  # counts the ways in which kvbench has converted files; folders of earlier ones are not read
# What transformers and gguf raise for fields and tensors that they cannot make a model of.
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    StrictDataclassError,
)
FORMAT = "weights_format"  # in the config.json of a converted file: the format of its numbers


def check_gguf(path: Path) -> None:
    """Raise UserError for a path that is no GGUF file."""
    if is_special(path):
        raise UserError(f"{path} cannot be read: it is a pipe, a socket or a device")
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise UserError(f"model.path={str(path)!r} cannot be read: {error.strerror or error}") from error
    if magic != MAGIC:
        raise UserError(f"model.path={str(path)!r} does not begin like a GGUF file")


def gguf_folder(path: Path) -> Path:
    """Folder with config, tokenizer and safetensors of a GGUF file, made if missing; identified by the SHA-256 of the
    file or of its parts.

    Raises UserError if transformers cannot read the file.
    """
    parts = parts_of(path)
    for part in parts:
        check_gguf(part)
    if len(parts) == 1:
        return converted(f"{path.stem}-{file_hash(path)[:16]}", lambda _: whole(path), stored_in)
    digest = sha256("".join(map(file_hash, parts)).encode()).hexdigest()
    name = name_without_part(path)
    # in the folder of work in progress: of a killed conversion, the next one removes it
    return converted(f"{name}-{digest[:16]}", lambda work: join([*map(whole, parts)], work / f"{name}.gguf"), stored_in)


def whole(file: Path) -> Path:
    """The file. Raises UserError if it does not hold what its beginning announces."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except UNREADABLE as error:
        size = f"{file.stat().st_size:,} bytes"
        reason = first_line(error).rstrip(".")
        raise UserError(
            f"{file} is no whole GGUF file: {reason}. It has {size}: was its download cut short?"
        ) from error
    return file


def converted(name: str, find: Callable[[Path], Path], format: Callable[[Path], str | None] = lambda _: None) -> Path:
    """The folder `name` in the cache, made from the GGUF file that `find` returns if it is missing. Its config.json has
    the result of `format` for the file under FORMAT. `find` gets a folder in which it may make the file.

    Each version of transformers has its own folder, since it makes another tokenizer and configuration of the same
    file, and so has each CONVERSION. The conversion happens in a temporary folder that is then renamed, so a killed one
    leaves nothing that looks finished.
    """
    target = cache_root() / "models" / f"transformers-{version('transformers')}-{CONVERSION}" / name
    if not target.is_dir():
        with on_disk(f"write the converted model to {target}", MOVES), appearing(target) as work:
            gguf = find(work)
            warn(f"converting {gguf.name} to safetensors, once for this version of transformers: {target}")
            try:
                _convert(gguf, work, format(gguf))
            except Exception as error:
                if not isinstance(error, UNREADABLE) and type(error) is not Exception:  # as tokenizers raises
                    raise
                raise UserError(f"transformers cannot convert {gguf}: {first_line(error)}") from error
            if gguf.parent == work:
                gguf.unlink()
    _forget_offline(target / "tokenizer_config.json")
    return target


def stored_in(path: Path) -> str | None:
    """The format of most of a file's numbers, as the file states it: "Q4_K_M GGUF"; None if it does not."""
    from gguf import GGUFReader, LlamaFileType

    field = GGUFReader(path).get_field("general.file_type")
    if field is None or not isinstance(number := field.contents(), int):
        return None
    if number not in {known.value for known in LlamaFileType}:
        return f"TYPE_{number} GGUF"  # of a later llama.cpp, whose tensors may still be readable
    return f"{LlamaFileType(number).name.removeprefix('MOSTLY_').removeprefix('ALL_')} GGUF"


def _forget_offline(config: Path) -> None:
    """Remove from a tokenizer's configuration whether the hub could be reached during the conversion.

    The model's identity is a hash of its files, and must not depend on HF_HUB_OFFLINE.
    """
    if not config.is_file():
        return
    text = config.read_text(encoding="utf-8")
    if (mended := text.replace('"local_files_only": true', '"local_files_only": false')) != text:
        write_atomically(config, mended)


def _convert(gguf: Path, folder: Path, format: str | None) -> None:
    """Write the model of a file into a folder. Raises UserError if transformers left out some of it."""
    import transformers
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kvbench.models.gguf_fields import check_window, fields_of, without_place
    from kvbench.models.gguf_rotation import DIVISORS, set_rotation

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    # Where `kernels` is installed, later versions of transformers fetch code of the hub that computes with packed
    # weights, which could not be saved.
    unpacked = transformers.GgufConfig(dequantize=True) if hasattr(transformers, "GgufConfig") else None
    model, loading = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        **({} if unpacked is None else {"quantization_config": unpacked}),
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # reported by check_complete
    )
    file = GGUFReader(gguf)
    check_complete("the file", {**loading, "unexpected_keys": without_place(file, model) - {DIVISORS}})
    check_window(fields_of(file), model.config)
    set_rotation(file, model)
    # The weights are plain float32 now, but saving refuses a model that is still marked as quantised.
    if hasattr(model.config, "quantization_config"):  # transformers 5.2 sets none
        del model.config.quantization_config
    if format is not None:
        setattr(model.config, FORMAT, format)
    model.hf_quantizer = None
    model.is_quantized = False
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, for example
        raise OSError(str(error)) from error
