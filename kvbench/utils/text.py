"""Short texts."""

import re


def count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def shortest(value: float) -> str:
    """A number as people write it: whole ones with every digit, as 1048576 tokens, others with at most six."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"


def first_line(error: BaseException | str) -> str:
    """The first line of an error's message, or of a text, with the next one where its last character is a colon; the
    name of its type if it is empty, and before a KeyError's, which is a key alone."""
    if isinstance(error, KeyError):
        return f"KeyError: {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return " ".join(said) or type(error).__name__


def in_one_line(error: BaseException) -> str:
    """An error's whole message as one line; the name of its type if it is empty."""
    return " ".join(str(error).split()) or type(error).__name__


def short_hashes(text: str) -> str:
    """The text with every hash (12 or more hexadecimal digits) cut to its first 10."""
    return re.sub("[0-9a-f]{12,}", lambda digits: digits[0][:10], text)


def duration(seconds: float) -> str:
    """About how long: "40 s", "3 min", "2 h 10 min", "4 days"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(round(minutes, -1), 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{round(hours / 24)} days"
