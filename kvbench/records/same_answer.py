"""Whether two records have the same answer."""

import json
from collections.abc import Mapping
from typing import Any

from kvbench.utils.hashing import digest


def same_answer(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records have the same answer: by tokens where both have them, else by text."""
    tokens, other_tokens = record["tokens"], other["tokens"]
    if tokens is not None and other_tokens is not None:
        return list(tokens) == list(other_tokens)
    return bool(record["prediction"] == other["prediction"])


def answer_hash(record: Mapping[str, Any]) -> str:
    """The hash by which a record names the answer that it was compared with."""
    return digest(json.dumps([record["key"], record["prediction"], record["tokens"]]))
