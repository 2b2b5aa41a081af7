"""Reading of regular files only: a pipe or a device may never end, or never begin."""

import errno
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from kvbench.utils.strangers import check_reading


class NotRegular(OSError):
    """The file is a pipe, a socket or a device."""

    def __init__(self, path: str | Path):
        super().__init__(errno.EINVAL, "not a regular file but a pipe, a socket or a device", str(path))


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file, or a link to one, open for reading bytes. Raises OSError at once for anything else, and UserError
    for a file that only a stranger's values name."""
    check_reading(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else opening a pipe waits for its writer
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise NotRegular(path)
        return open(descriptor, "rb")  # IsADirectoryError for a folder
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file. Raises OSError for anything else, and for more than `limit` bytes."""
    with open_regular(path) as file:
        if limit is not None and os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
        return file.read()


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """The text of a regular file, with \\n at the end of every line. Raises OSError and UnicodeDecodeError."""
    return io.TextIOWrapper(open_regular(path), encoding=encoding).read()


def is_special(path: Path) -> bool:
    """Whether a path exists and is neither a regular file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()
