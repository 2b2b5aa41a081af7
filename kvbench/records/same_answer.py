"""Whether two records have the same answer."""

import json
from collections.abc import Mapping
from typing import Any

from kvbench.utils.hashing import digest


def same_answer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """By tokens where both records have them, else by text."""
    tokens, theirs = one["tokens"], other["tokens"]
    if tokens is not None and theirs is not None:
        return list(tokens) == list(theirs)
    return bool(one["prediction"] == other["prediction"])


def answer_hash(record: Mapping[str, Any]) -> str:
    """What a record says of the answer that it was compared with."""
    return digest(json.dumps([record["key"], record["prediction"], record["tokens"]]))
