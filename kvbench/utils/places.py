"""Keys of benchmarks that name the place of data on this machine; the data's hash identifies it."""

from collections.abc import Mapping
from typing import Any

from kvbench.utils.targets import DESCRIBING

PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)

PUBLISHED = "published"  # in place of a path: the data that a package publishes


def identifying(node: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's configuration without places and descriptions, and so for a benchmark inside it."""
    kept = {key: value for key, value in node.items() if key not in PLACES | DESCRIBING}
    return {key: identifying(value) if isinstance(value, Mapping) else value for key, value in kept.items()}
