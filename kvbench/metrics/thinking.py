"""Answers that think before they answer."""

BEGIN_OF_THINKING, END_OF_THINKING = "<think>", "</think>"


def never_ends(text: str) -> bool:
    """Whether a text begins to think and has no answer: it was cut, or the model never came to one."""
    return text.lstrip().startswith(BEGIN_OF_THINKING) and END_OF_THINKING not in text
