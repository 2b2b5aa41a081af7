"""`${…}` in configurations: which are resolved while a configuration is composed, and that none is left afterwards.

A configuration is recorded, shown and passed on, so nothing in it may resolve to the machine's contents. Once it is
composed, a text with `${` is refused: another reader of the text would resolve it again.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvbench.errors import UserError

MARK = "${"
# Besides another key, as in `${model.name}`, a text may name these functions of the configuration and their arguments.
FUNCTIONS = ("oc.select", "model_name")
_ALLOWED = re.compile(rf"\$\{{\s*([\w.\[\]-]+\s*\}}|({'|'.join(map(re.escape, FUNCTIONS))})\s*:)")
SHOWN = 80  # characters of a text that an error quotes


class Written(NamedTuple):
    path: str  # the dotted key
    text: str


def marked(node: object, path: str = "") -> Iterator[Written]:
    """The texts of a configuration with `${`, including keys, each with its dotted key."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            place = f"{path}.{key}".lstrip(".")
            if MARK in str(key):
                yield Written(path or "a key", str(key))
            yield from marked(value, place)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from marked(value, path)
    elif isinstance(node, str) and MARK in node:
        yield Written(path, node)


def resolvable(text: str) -> bool:
    """Whether every `${` in a text as written, even an escaped one, names another key or one of FUNCTIONS."""
    return all(_ALLOWED.match(text, mark.start()) for mark in re.finditer(re.escape(MARK), text))


def check_resolvable(node: object, where: str = "") -> None:
    """Raise UserError for the first text of a configuration, before it is resolved, that is not `resolvable`."""
    for path, text in marked(node):
        if not resolvable(text):
            raise UserError(
                f"{where}{path}={text[:SHOWN]!r}: a configuration may refer to its own keys, as in "
                f"${{model.name}}, and to nothing else: no environment, no other functions"
            )


def check_resolved(node: object) -> None:
    """Raise UserError for the first text of a configuration that still has `${`, in one line."""
    for path, text in marked(node):
        raise UserError(f"{path}={text[:SHOWN]!r} has '{MARK}', which no value of a configuration may have")
