"""Published files: fetched once into kvbench's cache, proven by their hash, read from there ever after."""

import hashlib
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError

from kvbench.errors import UserError
from kvbench.utils.files import cache_root, write_atomically
from kvbench.utils.hashing import file_hash


def fetched(name: str, published: Mapping[str, str], otherwise: str) -> Path:
    """The UTF-8 file `name` in the cache, fetched from the first URL of `published` that gives it.

    `published` maps every URL to the SHA-256 of what it must give. Raises UserError with `otherwise`, what else
    the user can do, where no URL gives the file.
    """
    path = cache_root() / "downloads" / name
    if path.is_file() and file_hash(path) in published.values():
        return path
    reasons = []
    for url, wanted in published.items():
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                data = response.read()
        except (URLError, OSError, ValueError) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.sha256(data).hexdigest() == wanted:
            write_atomically(path, data.decode())
            return path
        reasons.append(f"{url} gives another file than the published one")
    raise UserError(f"{name} could not be fetched ({'; '.join(reasons)}): {otherwise}")
