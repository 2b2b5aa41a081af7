"""Answers that think before they answer."""

BEGIN_OF_THINKING, END_OF_THINKING = "<think>", "</think>"


def never_ends(text: str) -> bool:
    """Whether a text begins to think and never ends thinking."""
    return text.lstrip().startswith(BEGIN_OF_THINKING) and END_OF_THINKING not in text


def answer_part(text: str) -> str:
    """The text after the model's thinking; all of it where no thinking ends in it."""
    return text.rpartition(END_OF_THINKING)[2]
