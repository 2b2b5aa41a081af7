"""The verdicts of `kvbench compare`, in words and as exit codes."""

WITHIN, UNDECIDED, BROKEN = "within", "undecided", "broken"
WORSE = (WITHIN, UNDECIDED, BROKEN)  # from the best to the worst
CODES = {WITHIN: 0, UNDECIDED: 3, BROKEN: 1}  # exit codes


def worst(*codes: int) -> int:
    """The exit code of several: 1 where one is broken, else 3 where one is undecided, else 0."""
    return next((code for code in (CODES[BROKEN], CODES[UNDECIDED]) if code in codes), 0)
