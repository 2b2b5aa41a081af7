"""Errors that the user can correct: shown as a single line, exit code 2."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from os import PathLike
from os.path import exists
from typing import Any


class UserError(ValueError):
    """A mistake in a command, a configuration or a data file; the message is one sentence."""


class Incomplete(UserError):
    """A run that ended without some of its records: shown as a single line, exit code 1."""


# The most allowed values that a message names, where `kvbench --help KIND` lists them all.
LISTED, MOST = ("method", "model", "benchmark", "experiment"), 24


def unknown(kind: str, name: str, allowed: Iterable[str], meant: str = "") -> UserError:
    """An unknown name, with its nearest match and everything that is allowed, or where that is listed; `meant`: what
    the name stands for, where that is known better than by its letters."""
    allowed = sorted(allowed)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f" {meant}" if meant else f" Did you mean {near[0]!r}?" if near else ""
    if kind in LISTED and len(allowed) > MOST:
        return UserError(f"unknown {kind} {name!r}.{hint} kvbench --help {kind} lists all {len(allowed)}")
    return UserError(f"unknown {kind} {name!r}.{hint} Allowed: {', '.join(allowed)}")


def no_folder(path: str | PathLike[str]) -> UserError:
    """A path that should name a folder and names none."""
    return UserError(f"{path} is not a folder" if exists(path) else f"there is no folder {str(path)!r}")


def check_fields(name: str, node: Mapping[str, object], form: type[Any]) -> None:
    """Refuse keys of the configuration node `name` that the dataclass `form` has no field for, and missing ones."""
    known = {field.name: field for field in fields(form)}
    for key in node:
        if key not in known:
            raise unknown(f"key in {name}", str(key), known)
    for key, field in known.items():
        if key not in node and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{name}.{key} is missing")


@contextmanager
def on_disk(doing: str, then: str = "") -> Iterator[None]:
    """A disk that is full, read-only, forbidden or gone as a UserError: "cannot `doing`: why`then`"."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (fault := disk_fault(error)) is None:
            raise
        raise UserError(f"cannot {doing}: {fault.strerror or fault}{then}") from error


def disk_fault(error: BaseException | None) -> OSError | None:
    """`error`, or its cause: matplotlib's PDF writer raises another error while it cleans up after a full disk."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error
