"""Published files: fetched once into kvbench's cache, verified by their SHA-256, and read from there afterwards.

pooch's `retrieve` would not do: it takes one URL and one hash, so mirrors with other hashes would need this loop, too,
and it neither syncs the file nor leaves it readable to other users of a shared cache.
"""

import hashlib
import urllib.request
from collections.abc import Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path

from kvbench.errors import UserError, on_disk
from kvbench.utils.deadline import within
from kvbench.utils.files import cache_root, replacing
from kvbench.utils.hashing import file_hash
from kvbench.utils.text import in_one_line

TIMEOUT = 30  # seconds without an answer
DEADLINE = 600  # seconds for a whole file, of a few megabytes


def fetched(name: str, published: Mapping[str, str], otherwise: str) -> Path:
    """The path of the file `name` in the cache, downloaded from the first URL of `published` that works.

    `published` maps each URL to the SHA-256 of its file. Raises UserError if none works, with the reason for each URL
    and `otherwise`, the user's alternative; if the cache cannot be written; and offline (HF_HUB_OFFLINE, `kvbench
    verify`) for a file that the cache lacks.
    """
    from huggingface_hub import constants  # behind commands that fetch nothing

    path = cache_root() / "downloads" / name
    if path.is_file() and file_hash(path) in published.values():
        return path
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{name} is not in the cache ({path}), and nothing is fetched offline: {otherwise}")
    reasons = []
    for url, sha256 in published.items():
        try:
            data = within(DEADLINE, partial(_data, url))
        except (OSError, HTTPException, ValueError) as error:  # HTTPException: a bad status line, a body cut short
            reasons.append(f"{url}: {in_one_line(error)}")
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            with on_disk(f"write {path}", " (KVBENCH_CACHE=FOLDER moves the cache)"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as work:
                    work.write_bytes(data)
            return path
        reasons.append(f"{url} gives another file than the published one")
    raise UserError(f"{name} could not be fetched ({'; '.join(reasons)}): {otherwise}")


def _data(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        return response.read()
