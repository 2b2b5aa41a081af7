"""Limits on a stranger's folder, checked before it can take a machine's memory or time.

Each limit is far above the needs of runs. An excess is refused in one line.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, on_disk
from kvbench.records.samples import SAMPLES
from kvbench.records.store import record_files
from kvbench.utils.files import visible
from kvbench.utils.regular_files import open_regular

LINE = 2**20  # bytes of a record or a sample; one with tokens of each head in 128 layers has a tenth of that
# Bytes of a file, and for each of its lines: the larger limit holds. AIME's answers have 32,768 tokens, and all may.
LINES, A_LINE = 2**25, 2**19
MANIFESTS = 2**25  # bytes of all manifests of a folder
MOST_MANIFESTS = 4096
SETTINGS = 4096  # of a run's request
SAMPLES_MADE = 100_000  # of a benchmark
TEXT = 5 * 10**8  # characters that a benchmark tokenises to make its samples
LONGEST = 2**22  # tokens of a prompt with its answer


def check_sizes(folder: Path) -> None:
    """Raise UserError for files that are too large for records, samples or manifests; reads them without keeping any.

    kvbench.records.bounded_parquet checks the files of packs.
    """
    manifests = [path.stat().st_size for path in visible(folder / "manifests", "*.json") if path.is_file()]
    if len(manifests) > MOST_MANIFESTS:
        raise UserError(f"{folder} has {len(manifests):,} manifests: at most {MOST_MANIFESTS:,} are read")
    if sum(manifests) > MANIFESTS:
        raise UserError(f"{folder} has {sum(manifests):,} bytes of manifests: at most {MANIFESTS:,} are read")
    for path in (*record_files(folder), folder / SAMPLES):
        if path.exists():
            _check_lines(path)


def _check_lines(path: Path) -> None:
    lines = size = 0
    for length in _lengths(path):
        lines, size = lines + 1, size + length
        if length > LINE:
            raise UserError(f"{path} has a line of more than {LINE:,} bytes: no record or sample is so long")
    if size > (most := max(LINES, A_LINE * lines)):
        raise UserError(f"{path} has {size:,} bytes in {lines:,} lines: at most {most:,} are read")


def _lengths(path: Path) -> Iterator[int]:
    """The bytes of each line; of a longer one the first LINE + 1 alone."""
    with on_disk(f"read {path}"), open_regular(path) as file:
        while line := file.readline(LINE + 1):
            yield len(line)


def check_length(longest: int | None) -> None:
    """Raise UserError for prompts of more tokens than any model reads; None: unknown before the samples are made."""
    if longest is not None and longest > LONGEST:
        raise UserError(f"prompts of {longest:,} tokens: at most {LONGEST:,} are made")


def check_settings(methods: Mapping[str, Any], ratio: object, budget: object) -> None:
    """Raise UserError for more settings than are built, counted from the lists of a configuration."""
    nodes = [node for node in methods.values() if isinstance(node, Mapping)]
    shared = max(_many(ratio), _many(budget))
    count = sum(max(_many(node.get("ratio")), _many(node.get("budget")), 0) or shared for node in nodes) or shared
    if count > SETTINGS:
        raise UserError(f"{count:,} settings are requested: at most {SETTINGS:,} are built")


def check_product(lists: Mapping[str, Any]) -> None:
    """`check_settings` for an engine, whose lists make every combination of their values."""
    count = 1
    for value in lists.values():
        count *= max(len(value), 1) if isinstance(value, list) else 1
        if count > SETTINGS:
            raise UserError(f"more than {SETTINGS:,} settings are requested: no more are built")


def _many(value: object) -> int:
    return len(value) if isinstance(value, Sequence) and not isinstance(value, str) else 0
