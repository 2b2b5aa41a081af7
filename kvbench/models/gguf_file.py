"""GGUF files, converted once to safetensors in the layout of the hub."""

import os
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import SafetensorError

from kvbench.errors import UserError, on_disk
from kvbench.models.gguf_parts import join, name_without_part, parts_of
from kvbench.utils.console import warn
from kvbench.utils.files import appearing, cache_root, write_atomically
from kvbench.utils.hashing import file_hash
from kvbench.utils.regular_files import is_special
from kvbench.utils.text import first_line

MOVES = " (KVBENCH_CACHE=FOLDER moves it)"
MAGIC = b"GGUF"
FORMAT = "weights_format"  # in the config.json of what was converted: what the file's numbers were stored in


def check_gguf(path: Path) -> None:
    """Raise UserError for what is no whole GGUF file."""
    if is_special(path):
        raise UserError(f"{path} cannot be read: it is a pipe, a socket or a device")
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise UserError(f"model.path={str(path)!r} cannot be read: {error.strerror or error}") from error
    if magic != MAGIC:
        raise UserError(f"model.path={str(path)!r} does not begin as a GGUF file does")


def gguf_folder(path: Path) -> Path:
    """Folder with config, tokenizer and safetensors of a GGUF file, made when missing; known by the file's SHA-256, or
    by those of its parts.

    Raises UserError where transformers cannot read the file.
    """
    parts = parts_of(path)
    for part in parts:
        check_gguf(part)
    if len(parts) == 1:
        return converted(f"{path.stem}-{file_hash(path)[:16]}", lambda: path, stored_in)
    together = sha256("".join(map(file_hash, parts)).encode()).hexdigest()
    name = f"{name_without_part(path)}-{together[:16]}"
    whole = cache_root() / "models" / f"{name}.{os.getpid()}.gguf"
    whole.parent.mkdir(parents=True, exist_ok=True)
    try:
        return converted(name, lambda: join(parts, whole), stored_in)
    finally:
        whole.unlink(missing_ok=True)


def converted(name: str, find: Callable[[], Path], format: Callable[[Path], str | None] = lambda _: None) -> Path:
    """The folder `name` in the cache, made of the GGUF file that `find` returns where it is missing; its config.json
    says in FORMAT what `format` returns of the file.

    Each version of transformers has its own, as it makes another tokenizer and configuration of the same file. The
    conversion happens beside the final place and is renamed into it, so a killed one leaves nothing behind that looks
    finished.
    """
    target = cache_root() / "models" / f"transformers-{version('transformers')}" / name
    if not target.is_dir():
        gguf = find()
        with on_disk(f"write the converted model to {target}", MOVES), appearing(target) as work:
            warn(f"converting {gguf.name} to safetensors, once for this version of transformers: {target}")
            try:
                _convert(gguf, work, format(gguf))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, NotImplementedError) as error:
                raise UserError(f"transformers cannot convert {gguf}: {first_line(error)}") from error
    _forget_offline(target / "tokenizer_config.json")
    return target


def stored_in(path: Path) -> str | None:
    """What a file says that most of its numbers are stored in: "Q4_K_M GGUF"; None where it does not say."""
    from gguf import GGUFReader, LlamaFileType

    field = GGUFReader(path).get_field("general.file_type")
    if field is None:
        return None
    return f"{LlamaFileType(int(field.contents())).name.removeprefix('MOSTLY_').removeprefix('ALL_')} GGUF"


def _forget_offline(config: Path) -> None:
    """Take out of a tokenizer's configuration whether the hub could be reached while it was converted.

    The model's identity is a hash over its files, and must not depend on HF_HUB_OFFLINE.
    """
    if not config.is_file():
        return
    text = config.read_text(encoding="utf-8")
    if (mended := text.replace('"local_files_only": true', '"local_files_only": false')) != text:
        write_atomically(config, mended)


def _convert(gguf: Path, folder: Path, format: str | None) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain float32 by now; only the marks say "quantised", and saving refuses over them.
    if hasattr(model.config, "quantization_config"):  # transformers 5.2 sets none
        del model.config.quantization_config
    if format is not None:
        setattr(model.config, FORMAT, format)
    model.hf_quantizer = None
    model.is_quantized = False
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, for one
        raise OSError(str(error)) from error
