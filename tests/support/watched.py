"""What Python itself says of files, imports, processes and connections while code runs (sys.addaudithook)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

LISTED = ("os.listdir", "os.scandir")
OUTSIDE = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "urllib.Request")
_watches: list[tuple[Path, str, list[str]]] = []


@contextmanager
def watched(folder: Path, module: str) -> Iterator[list[str]]:
    """What happens in the block: files opened and folders listed below `folder`, the file of `module` opened by the
    first import, and processes and connections that are started."""
    _install()
    seen: list[str] = []
    _watches.append((folder.resolve(), module, seen))
    try:
        yield seen
    finally:
        _watches.pop()


@cache
def _install() -> None:
    """Once for the process: a hook cannot be removed."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple) -> None:
    if not _watches:
        return
    folder, module, seen = _watches[-1]
    if event == "open" or event in LISTED:
        place = arguments[0]
        if isinstance(place, str | Path | None):
            path = Path(place or ".").resolve()
            # importlib.import_module tells of no import, but opens the module's file
            if path.is_relative_to(folder) or (event == "open" and path.name.startswith(module)):
                seen.append(f"{event} {path.name}")
    elif event in OUTSIDE:
        seen.append(event)
