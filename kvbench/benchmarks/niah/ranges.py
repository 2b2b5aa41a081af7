"""Types of fields that hold the lengths or depths of a grid: lists of numbers that one line of YAML can write."""

import math
import re
from collections.abc import Sequence
from typing import Annotated, TypeGuard

import numpy as np
from pydantic import BeforeValidator, Field

from kvbench.errors import UserError

_RANGE = re.compile(r"(-?[\d.]+) to (-?[\d.]+) (?:by ([\d.]+)|in (\d+)( sigmoid)?)")
_MOST = 10_000  # numbers of a range: no grid has more
_FORMS = "a list of numbers, 'A to B by STEP', 'A to B in COUNT' or 'A to B in COUNT sigmoid'"


def numbers(value: object) -> list[int | float]:
    """The numbers that `value` stands for, each once, in order; whole ones as int.

    1000 to 8000 by 100      both ends included
    0 to 100 in 10           ten evenly spread, those of NumPy's linspace
    0 to 100 in 35 sigmoid   dense towards both ends: the logistic curve of Kamradt's tester, to three places

    A list or a single number is taken as it is. Raises ValueError with the allowed forms for anything else.
    """
    found: object = _from_text(value) if isinstance(value, str) else [value] if _is_number(value) else value
    if not isinstance(found, Sequence) or not found or not all(_is_number(x) and math.isfinite(x) for x in found):
        raise ValueError(_FORMS)
    return list(dict.fromkeys(int(x) if x == int(x) else x for x in found))


def whole(value: object) -> list[int | float]:
    """`numbers`, of which those of 'A to B in COUNT' are rounded to whole ones."""
    found = numbers(value)
    evenly = isinstance(value, str) and (form := _RANGE.fullmatch(value.strip())) and form[4] and not form[5]
    return numbers([round(x) for x in found]) if evenly else found


# Tokens of a prompt, and places in a text in per cent
Lengths = Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(whole)]
_Depth = Annotated[int, Field(ge=0, le=100)] | Annotated[float, Field(ge=0, le=100)]
Depths = Annotated[list[_Depth], BeforeValidator(numbers)]
WholeDepths = Annotated[list[_Depth], BeforeValidator(whole)]


def check_room(lengths: Sequence[int], buffer: int) -> None:
    """Raise UserError where a prompt of one of these lengths has no 100 tokens of text beside `buffer`."""
    least = buffer + 100
    for number, length in enumerate(lengths, 1):
        if length < least:
            raise UserError(
                f"item {number} of benchmark.lengths={length} must be an integer of at least {least}: "
                f"benchmark.buffer={buffer}, and 100 tokens of text"
            )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _from_text(text: str) -> list[float]:
    if (form := _RANGE.fullmatch(text.strip())) is None:
        raise ValueError(_FORMS)
    try:
        first, last = float(form[1]), float(form[2])
        step = None if form[3] is None else float(form[3])
        count = 0 if form[4] is None else int(form[4])
    except ValueError:
        raise ValueError(_FORMS) from None
    if last <= first or step == 0 or (step is None and count < 2):
        raise ValueError("a range that is not empty: A < B, STEP > 0 and COUNT > 1")
    if (count if step is None else (last - first) / step) > _MOST:
        raise ValueError(f"a range of at most {_MOST:,} numbers")
    if step is not None:
        return [first + i * step for i in range(int((last - first) / step + 1e-9) + 1)]
    if form[5]:
        shares = [i / (count - 1) for i in range(count)]
        return [round(first + (last - first) * _logistic(share), 3) for share in shares]
    evenly: list[float] = np.linspace(first, last, count).tolist()
    return evenly


def _logistic(share: float) -> float:
    """Kamradt's curve over [0, 1], whose two ends stay where they are."""
    return share if share in (0, 1) else 1 / (1 + math.exp(-10 * (share - 0.5)))
