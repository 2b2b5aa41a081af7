"""LongBench v2's official metric (github.com/THUDM/LongBench at 2e00731, pred.py and result.py)."""

import re

# The letter that an answer chooses: in parentheses anywhere in it, else without.
_CHOSEN = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
GUESSED = 0.25  # the value of an answer without a choice in result.py's `compensated`


def chosen(prediction: str) -> str | None:
    """The letter A to D that the prediction names in the requested form; asterisks are ignored."""
    text = prediction.strip().replace("*", "")
    return next((match[1] for form in _CHOSEN if (match := form.search(text))), None)


def score(prediction: str, answer: str) -> dict[str, float]:
    """`score`: 1 if the prediction chooses the answer's letter. `compensated`: the same, but 0.25 without a choice."""
    letter = chosen(prediction)
    right = float(letter == answer)
    return {"score": right, "compensated": GUESSED if letter is None else right}
