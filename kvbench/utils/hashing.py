"""Hashes of files and of settings."""

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path

from kvbench.utils.files import cache_root, replacing
from kvbench.utils.regular_files import open_regular
from kvbench.utils.strangers import check_reading


def file_hash(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache because weights take long to read.

    Path, inode, size and times identify the file. Unlike mtime, the change time (ctime) cannot be set back.
    """
    check_reading(path)  # its hash may be remembered, and then the file is not opened
    stat = path.stat()
    mark = f"{path.resolve()}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
    memory = cache_root() / "hashes" / hashlib.sha256(mark.encode()).hexdigest()
    with suppress(OSError):  # no such file, or a cache that cannot be read
        if re.fullmatch("[0-9a-f]{64}", remembered := memory.read_text(errors="replace")):
            return remembered
    sha256 = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(2**20):
            sha256.update(block)
    value = sha256.hexdigest()
    with suppress(OSError):  # it only saves time
        memory.parent.mkdir(parents=True, exist_ok=True)
        with replacing(memory) as work:
            work.write_text(value)
    return value


def digest(*parts: object) -> str:
    """A short stable hash of JSON-able parts."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
