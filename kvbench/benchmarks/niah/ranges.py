"""Types of fields that hold the lengths or depths of a grid: lists of numbers that one line of YAML can write."""

import math
import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from kvbench.errors import UserError
from kvbench.utils.numbers import is_number

_RANGE = re.compile(r"(-?[\d.]+) to (-?[\d.]+) (?:by ([\d.]+)|in (\d+)( sigmoid)?)")
_MOST = 10_000  # numbers of a range: no grid has more
_FORMS = "a list of numbers, 'A to B by STEP', 'A to B in COUNT' or 'A to B in COUNT sigmoid'"


def numbers(value: object) -> list[int | float]:
    """The numbers that `value` describes, each once, in order; integers as int.

    1000 to 8000 by 100      both ends included
    0 to 100 in 10           ten evenly spread, as NumPy's linspace
    0 to 100 in 35 sigmoid   dense towards both ends: the logistic curve of Kamradt's tester, to three places

    A list or a single number is taken as it is. Raises ValueError with the allowed forms for anything else.
    """
    items: object = _from_text(value) if isinstance(value, str) else [value] if is_number(value) else value
    if not isinstance(items, Sequence) or not items or not all(is_number(x) and math.isfinite(x) for x in items):
        raise ValueError(_FORMS)
    return list(dict.fromkeys(int(x) if x == int(x) else x for x in items))


def integers(value: object) -> list[int | float]:
    """`numbers`, with 'A to B in COUNT' rounded to integers."""
    exact = numbers(value)
    evenly = isinstance(value, str) and (form := _RANGE.fullmatch(value.strip())) and form[4] and not form[5]
    return numbers([round(x) for x in exact]) if evenly else exact


def whole(value: object) -> list[int]:
    """`integers`, as int."""
    return [int(number) for number in integers(value)]


# Tokens of a prompt, and depths in a text in per cent
Lengths = Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(integers)]
_Depth = Annotated[int, Field(ge=0, le=100)] | Annotated[float, Field(ge=0, le=100)]
Depths = Annotated[list[_Depth], BeforeValidator(numbers)]
IntegerDepths = Annotated[list[_Depth], BeforeValidator(integers)]


def check_room(lengths: Sequence[int], buffer: int) -> None:
    """Raise UserError where a prompt of one of these lengths has no 100 tokens of text beside `buffer`."""
    least = buffer + 100
    for number, length in enumerate(lengths, 1):
        if length < least:
            raise UserError(
                f"item {number} of benchmark.lengths={length} must be an integer of at least {least}: "
                f"benchmark.buffer={buffer}, and 100 tokens of text"
            )


def _from_text(text: str) -> list[float]:
    if (form := _RANGE.fullmatch(text.strip())) is None:
        raise ValueError(_FORMS)
    try:
        low, high = float(form[1]), float(form[2])
        step = None if form[3] is None else float(form[3])
        count = 0 if form[4] is None else int(form[4])
    except ValueError:
        raise ValueError(_FORMS) from None
    if high <= low or step == 0 or (step is None and count < 2):
        raise ValueError("a range that is not empty: A < B, STEP > 0 and COUNT > 1")
    if (count if step is None else (high - low) / step) > _MOST:
        raise ValueError(f"a range of at most {_MOST:,} numbers")
    if step is not None:
        return [low + i * step for i in range(int((high - low) / step + 1e-9) + 1)]
    if form[5]:
        shares = [i / (count - 1) for i in range(count)]
        return [round(low + (high - low) * _logistic(share), 3) for share in shares]
    return np.linspace(low, high, count).tolist()


def _logistic(share: float) -> float:
    """Kamradt's curve over [0, 1], with its two ends at 0 and 1."""
    return share if share in (0, 1) else 1 / (1 + math.exp(-10 * (share - 0.5)))
