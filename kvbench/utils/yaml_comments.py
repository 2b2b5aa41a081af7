"""The comments of a YAML file of settings, each about the key of its line or of the line below."""

import re
from typing import NamedTuple

_LINE = re.compile(r"( *)(- )?([\w.]+):(?: +([^#\s].*?))?(?: +# (.*))?")
_COMMENT = re.compile(r" *# (.*)")


class Commented(NamedTuple):
    """A key's value as written, and its comment."""

    value: str
    about: str


def commented(text: str) -> dict[str, Commented]:
    """Every key that has a comment by its dotted path, in the order of the lines; keys of `defaults` are top-level.

    Blocks may be two deep. A comment of several lines is above its key; a blank line ends it.
    """
    comments: dict[str, Commented] = {}
    above, parent = [], ""
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if match := _LINE.fullmatch(line):
            indent, item, key, value, about = match.groups()
            about = " ".join([*above, *([about] if about else [])])
            if not indent:
                parent = "" if value or key == "defaults" else f"{key}."
            name = f"{parent if indent and not item else ''}{key}"
            if about and value:
                comments[name] = Commented(value, about)
        above = []
    return comments
