"""LongBench v2's official metric (github.com/THUDM/LongBench at 2e00731, pred.py and result.py)."""

import re

# The letter that an answer chooses: in parentheses anywhere in it, else without.
_CHOSEN = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
GUESSED = 0.25  # what result.py's `compensated` counts for an answer that chooses nothing


def chosen(prediction: str) -> str | None:
    """The letter A to D that the prediction names in the form that the prompt asks for; asterisks do not count."""
    text = prediction.strip().replace("*", "")
    return next((match[1] for form in _CHOSEN if (match := form.search(text))), None)


def score(prediction: str, answer: str) -> dict[str, float]:
    """`score`: 1 if the prediction chooses the answer's letter. `compensated`: the same, 0.25 where it chooses none."""
    letter = chosen(prediction)
    right = float(letter == answer)
    return {"score": right, "compensated": GUESSED if letter is None else right}
