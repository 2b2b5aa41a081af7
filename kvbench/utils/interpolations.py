"""`${…}` in configurations: what may be resolved while one is composed, and texts that hold any afterwards.

A configuration is recorded, shown and handed on. So nothing in it is resolved to what its machine holds, and once it is
composed, a text with `${` is refused: whatever reads the text again would take it for more than a text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvbench.errors import UserError

MARK = "${"
# Another key, `${model.name}`, alone or by one of these functions, which read the configuration and their arguments.
FUNCTIONS = ("oc.select", "model_name")
_ALLOWED = re.compile(rf"\$\{{\s*([\w.\[\]-]+\s*\}}|({'|'.join(map(re.escape, FUNCTIONS))})\s*:)")
SHOWN = 80  # characters of a text that an error quotes


class Written(NamedTuple):
    path: str  # the dotted key
    text: str


def marked(node: object, path: str = "") -> Iterator[Written]:
    """The texts of a configuration with `${`, keys too, each with the dotted key at which it stands."""
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
    """Whether every `${` in a text as written, an escaped one too, names another key or one of FUNCTIONS."""
    return all(_ALLOWED.match(text, found.start()) for found in re.finditer(re.escape(MARK), text))


def check_resolvable(node: object, where: str = "") -> None:
    """Raise UserError for the first text of a configuration, before it is resolved, that is not `resolvable`."""
    for path, text in marked(node):
        if not resolvable(text):
            raise UserError(
                f"{where}{path}={text[:SHOWN]!r}: a configuration may refer to its own keys, as in "
                f"${{model.name}}, and to nothing else: no environment, no other functions"
            )


def check_resolved(node: object, where: str = "") -> None:
    """Raise UserError for the first text of a configuration that still has `${`, in one line."""
    for path, text in marked(node):
        raise UserError(f"{where}{path}={text[:SHOWN]!r} has '{MARK}', which no value of a configuration may have")
