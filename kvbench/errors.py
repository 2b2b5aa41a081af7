"""The one exception that means "the user can mend this": shown as a single line, exit code 2."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in a command, a configuration or a data file, told in one sentence."""


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UserError:
    """An unknown name, with its nearest match and everything that is allowed."""
    allowed = sorted(allowed)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {kind} {name!r}.{hint} Allowed: {', '.join(allowed)}")
