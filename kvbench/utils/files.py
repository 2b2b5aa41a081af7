"""Files and folders that are whole or as they were, whatever happens while they are written."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to. Synced, it takes `path`'s place at the end; where that fails it is gone."""
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield work
        with work.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut may leave an empty file under the new name
        work.replace(path)
    except BaseException:
        work.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """The whole text or the file as it was; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as work:
        work.write_text(text, encoding="utf-8")


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A folder to fill that becomes `target` at the end; gone where that fails, or where another process was faster."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=".making-"))
    try:
        yield work
        work.chmod(0o755)
        work.rename(target)
    except OSError:
        if not target.is_dir():  # else another process made the same
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def cache_root() -> Path:
    """$KVBENCH_CACHE, or kvbench's folder in the user's cache: on Linux in $XDG_CACHE_HOME or ~/.cache.

    A user without a home directory, as some containers have, gets a folder in the system's temporary one.
    """
    if chosen := os.environ.get("KVBENCH_CACHE"):
        return Path(chosen)
    if not os.environ.get("XDG_CACHE_HOME") and os.path.expanduser("~") == "~":
        return Path(tempfile.gettempdir()) / f"kvbench-{os.getuid()}"
    return Path(platformdirs.user_cache_dir("kvbench", appauthor=False))


def folder_name(text: str) -> str:
    """A text as part of a folder's name: what separates folders, or cannot be printed, becomes "-"."""
    return "".join(character if character.isprintable() and character not in "/\\" else "-" for character in text)
