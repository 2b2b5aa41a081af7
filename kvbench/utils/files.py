"""Atomic writes: files and folders are complete or unchanged, whatever happens while they are written."""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Names of work in progress. Its process holds a lock on it, which shows whether a killed process left it behind.
WORK = ".kvbench-work"
MAKING = ".making-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to: synced and moved to `path` at the end, removed on failure."""
    remove_abandoned(path.parent, f".*{WORK}")
    work = path.with_name(f".{path.name}.{os.getpid()}{WORK}")
    with _locked(lambda: os.open(work, os.O_CREAT | os.O_RDWR, 0o666), work):
        try:
            yield work
            with work.open("rb") as file:
                os.fsync(file.fileno())  # else a power cut may leave an empty file under the new name
            work.replace(path)
        except BaseException:
            work.unlink(missing_ok=True)
            raise


def write_atomically(path: Path, text: str) -> None:
    """Write the whole text, or leave the file as it was. A missing folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as work:
        work.write_text(text, encoding="utf-8")


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` at the end; removed on failure, or if another process was faster."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent, f"{MAKING}*")
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=MAKING))
    with _locked(lambda: _opened_folder(work), work):
        try:
            yield work
            work.chmod(0o755)
            work.rename(target)
        except OSError:
            if not target.is_dir():  # else another process made the same
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _opened_folder(folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    return os.open(folder, os.O_RDONLY)


@contextmanager
def _locked(open_work: Callable[[], int], work: Path) -> Iterator[None]:
    """Hold a lock on a file or folder in progress, if the file system has locks."""
    while True:
        descriptor = open_work()
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(descriptor), work.stat()):
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # before it was locked, another process removed it as abandoned
    try:
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the work in progress that killed processes left in a folder, which no process has locked."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(descriptor)


def visible(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder by a pattern of `Path.glob`, in the order of their names, without hidden ones.

    macOS puts a file `._NAME` beside each file that it copies or packs: it has the ending of NAME and other contents.
    """
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def below(folder: Path, pattern: str) -> list[Path]:
    """The paths below a folder by a pattern of `Path.rglob`, and those below folders that links in it lead to.

    A run that was moved to another disk may have left such a link. One into the folder itself (`latest`) adds nothing.
    """
    if not folder.is_dir():
        return []
    top, paths = folder.resolve(), sorted(folder.rglob(pattern))
    targets: set[Path] = set()
    for link in (path for path in sorted(folder.iterdir()) if path.is_symlink() and path.is_dir()):
        target = link.resolve()
        if not target.is_relative_to(top) and not top.is_relative_to(target) and target not in targets:
            targets.add(target)
            paths += sorted(link.rglob(pattern))
    return paths


def cache_root() -> Path:
    """$KVBENCH_CACHE, or kvbench's folder in the user's cache: on Linux in $XDG_CACHE_HOME or ~/.cache.

    A user without a home directory, as some containers have, gets a folder in the system's temporary one.
    """
    if chosen := os.environ.get("KVBENCH_CACHE"):
        return Path(chosen)
    if not os.environ.get("XDG_CACHE_HOME") and os.path.expanduser("~") == "~":
        return Path(tempfile.gettempdir()) / f"kvbench-{os.getuid()}"
    users = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(users)) / "kvbench"


def folder_name(text: str) -> str:
    """A text as part of a folder's name: separators and unprintable characters become "-"."""
    return "".join(character if character.isprintable() and character not in "/\\" else "-" for character in text)
