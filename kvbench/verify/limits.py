"""What a folder may cost before it is read, so that no stranger's file takes the memory or the time of a machine.

Each limit is far above what runs need. What is above one is refused in a line.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, on_disk
from kvbench.records.samples import SAMPLES
from kvbench.records.store import record_files
from kvbench.utils.regular_files import open_regular

LINE = 2**20  # bytes of a record or a sample; one with tokens of each head in 128 layers has a tenth of that
LINES, A_LINE = 2**25, 2**15  # bytes of a file: the larger of the first, and of the second for every line
MANIFESTS = 2**25  # bytes of all manifests of a folder
MOST_MANIFESTS = 4096
SETTINGS = 4096  # that a run requests
SAMPLES_MADE = 100_000  # that a benchmark makes
TEXT = 5 * 10**8  # characters that a benchmark tokenises to make them
LONGEST = 2**22  # tokens of a prompt with its answer


def check_sizes(folder: Path) -> None:
    """Raise UserError for files of a folder that are larger than records, samples and manifests are.

    Nothing is kept of what is read. kvbench.records.bounded_parquet looks after the files of packs.
    """
    manifests = [path.stat().st_size for path in (folder / "manifests").glob("*.json") if path.is_file()]
    if len(manifests) > MOST_MANIFESTS:
        raise UserError(f"{folder} has {len(manifests):,} manifests: at most {MOST_MANIFESTS:,} are read")
    if sum(manifests) > MANIFESTS:
        raise UserError(f"{folder} has {sum(manifests):,} bytes of manifests: at most {MANIFESTS:,} are read")
    for path in (*record_files(folder), folder / SAMPLES):
        if path.exists():
            _check_lines(path)


def _check_lines(path: Path) -> None:
    lines = taken = 0
    for length in _lengths(path):
        lines, taken = lines + 1, taken + length
        if length > LINE:
            raise UserError(f"{path} has a line of more than {LINE:,} bytes: no record or sample is so long")
    if taken > (most := max(LINES, A_LINE * lines)):
        raise UserError(f"{path} has {taken:,} bytes in {lines:,} lines: at most {most:,} are read")


def _lengths(path: Path) -> Iterator[int]:
    """The bytes of each line; no more than LINE + 1 are read of a longer one."""
    with on_disk(f"read {path}"), open_regular(path) as file:
        while line := file.readline(LINE + 1):
            yield len(line)


def check_length(longest: int | None) -> None:
    """Raise UserError for prompts of more tokens than any model reads; None where only the samples tell."""
    if longest is not None and longest > LONGEST:
        raise UserError(f"prompts of {longest:,} tokens: at most {LONGEST:,} are made")


def check_settings(methods: Mapping[str, Any], ratio: object, budget: object) -> None:
    """Raise UserError for more settings than are built, counted from the lists of a configuration."""
    named = [node for node in methods.values() if isinstance(node, Mapping)]
    shared = max(_many(ratio), _many(budget))
    count = sum(max(_many(node.get("ratio")), _many(node.get("budget")), 0) or shared for node in named) or shared
    if count > SETTINGS:
        raise UserError(f"{count:,} settings are requested: at most {SETTINGS:,} are built")


def check_product(lists: Mapping[str, Any]) -> None:
    """The same for an engine, whose lists make every combination of their values."""
    count = 1
    for value in lists.values():
        count *= max(len(value), 1) if isinstance(value, list) else 1
        if count > SETTINGS:
            raise UserError(f"more than {SETTINGS:,} settings are requested: no more are built")


def _many(value: object) -> int:
    return len(value) if isinstance(value, Sequence) and not isinstance(value, str) else 0
