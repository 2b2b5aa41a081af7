"""Rows of JSON-lines files, checked before anything is run: an error is one line that names file and row."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Any

from kvbench.errors import UserError
from kvbench.utils.file_forms import other_form
from kvbench.utils.numbers import is_number
from kvbench.utils.regular_files import open_regular

# Types of a field: str, int, float, bool, list, dict, list[str] and the like, None, or a tuple of these.
FieldType = type | GenericAlias | None
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
_WORDS |= {dict: "an object", NoneType: "null"}
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_rows(
    path: str | Path,
    fields: Mapping[str, FieldType | tuple[FieldType, ...]],
    *,
    filled: Collection[str] = (),
    unique: str | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a UTF-8 file with a JSON object in each line; blank lines are skipped.

    Every row must have `fields` with values of these types; it may have other fields. Texts and lists in `filled` must
    not be empty, values of the field `unique` other than null may occur once, and `check` raises ValueError for a wrong
    row. Raises UserError that names the file and, counting lines from 1, the row; it never repeats the row.
    """
    return checked_rows(path, numbered_rows(Path(path)), fields, filled=filled, unique=unique, check=check)


def checked_rows(
    path: str | Path,
    numbered: Iterable[tuple[int, dict[str, Any]]],
    fields: Mapping[str, FieldType | tuple[FieldType, ...]],
    *,
    filled: Collection[str] = (),
    unique: str | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a file of any form, each with its number, after the checks that `read_rows` describes."""
    rows: list[dict[str, Any]] = []
    first_rows: dict[str, int] = {}
    for number, row in numbered:
        try:
            _check(row, fields, filled)
            if check is not None:
                check(row)
        except ValueError as error:
            raise UserError(f"{path}, row {number}: {error}") from None
        if unique is not None and row[unique] is not None:
            first = first_rows.setdefault(str(row[unique]), number)
            if first != number:
                raise UserError(f"{path}, row {number}: {unique} {_short(row[unique])} is also in row {first}")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no rows")
    return rows


def numbered_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The unchecked rows of a UTF-8 file with a JSON object in each line, each with its line's number from 1."""
    for rows, (number, line) in enumerate(_lines(path)):
        try:
            row = _parse(line)
        except ValueError as error:
            if not rows and (form := other_form(path)):
                raise UserError(f"{path} must have one JSON object per line, and is {form}") from None
            raise UserError(f"{path}, row {number}: {error}") from None
        yield number, row


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank with their numbers, without the file's byte order mark."""
    try:
        with open_regular(path) as file:  # bytes: only \n ends a line, and a wrong encoding is found row by row
            for number, line in enumerate(file, 1):
                line = line.removeprefix(_BOM) if number == 1 else line
                if line.strip():
                    yield number, line
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _parse(line: bytes) -> dict[str, Any]:
    """One row. Raises ValueError that states the mistake without repeating the row."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start + 1} of the row)") from None
    try:
        row = json.loads(text, parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(f"broken JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("broken JSON: nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {_kind(row)}")
    if _SURROGATE.search(line):  # half of a surrogate pair is no character and cannot be written to a record
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("broken JSON: unpaired surrogate (\\ud800 to \\udfff)") from None
    return row


def _check(row: dict[str, Any], fields: Mapping[str, Any], filled: Collection[str]) -> None:
    for name, allowed in fields.items():
        if name not in row:
            raise ValueError(f"field {name!r} is missing")
        allowed = allowed if isinstance(allowed, tuple) else (allowed,)
        if not any(_is(row[name], kind) for kind in allowed):
            kinds = " or ".join(map(_words, allowed))
            raise ValueError(f"field {name!r} is {_kind(row[name])}, not {kinds}")
    for name in filled:
        value = row[name]
        if not (value.strip() if isinstance(value, str) else value):
            raise ValueError(f"field {name!r} is empty")


def _is(value: object, kind: FieldType) -> bool:
    """Whether a JSON value is of a type; true is no number, and an integer is a float, too."""
    if isinstance(kind, GenericAlias):
        (item,) = kind.__args__
        return isinstance(value, list) and all(_is(part, item) for part in value)
    if kind is float:
        return is_number(value)
    return type(value) is (NoneType if kind is None else kind)


def _words(kind: FieldType) -> str:
    if isinstance(kind, GenericAlias):
        return f"a list in which each item is {_words(kind.__args__[0])}"
    return _WORDS[NoneType if kind is None else kind]


def _kind(value: object) -> str:
    """The type of a value in words, for a list with the types of its items."""
    if not isinstance(value, list) or not value:
        return "an empty list" if value == [] else _WORDS[type(value)]
    return "a list with " + " and ".join(sorted({_WORDS[type(part)] for part in value}))


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{_short(digits)} is larger than any number that can be stored")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"broken JSON: {name} is not a number in JSON")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {_short(next(name for name in row if names.count(name) > 1))} occurs twice")
    return row


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:60] + "…"
