"""Final answers of mathematics problems: finding them in a text, and scoring them."""

import re

from kvbench.metrics.math_equality import equal
from kvbench.metrics.math_numbers import last_number, number
from kvbench.metrics.thinking import answer_part

_BOX = re.compile(r"\\boxed\s*\{")


def last_box(text: str) -> str | None:
    r"""The content of the last \boxed{…} whose braces balance; None without one."""
    content = None
    for match in _BOX.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            if text[end] == "\\":
                end += 1  # an escaped brace is no brace
            else:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if not depth:
            content = text[match.end() : end - 1]
    return content


def integer_score(prediction: str, answer: str) -> dict[str, float]:
    """AIME's score: whether the number in the last box is the answer; without a box, the last line's last number."""
    text = answer_part(prediction)
    box = last_box(text)
    if box is None:
        lines = [line for line in text.splitlines() if line.strip()]
        value = last_number(lines[-1]) if lines else None
    else:
        value = number(box)
    return scores(value == int(answer), box)


def expression_score(prediction: str, answer: str) -> dict[str, float]:
    """MATH's score: whether the expressions are mathematically equal, by Math-Verify.

    undecided: the comparison took too long, and counts as wrong.
    """
    text = answer_part(prediction)
    right = equal(answer, text)
    return scores(right, last_box(text)) | {"undecided": float(right is None)}


def scores(right: bool | None, box: str | None) -> dict[str, float]:
    """Whether the answer is right, and whether the text has a box."""
    return {"correct": float(right is True), "boxed": float(box is not None)}
