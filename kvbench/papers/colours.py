"""A colour for each method in every figure and on every page, by its name and never by its order."""

import re
import zlib
from collections.abc import Iterable

from kvbench.config import file_of, stated, titled
from kvbench.errors import UserError

# What a file of conf/method or conf/engine may state as its colour: apart in hue and lightness, on white and on black.
# The first ones are furthest apart: they are those of the methods that papers compare most.
PALETTE = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "pink": "#cc79a7",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "violet": "#8a6fd1",
    "brick": "#b22222",
    "olive": "#7f9a1c",
    "teal": "#00a5a5",
    "brown": "#8b5a2b",
    "rose": "#e64980",
    "indigo": "#5c7cfa",
    "lawn": "#37b24d",
    "yellow": "#c2b600",
    "purple": "#9c36b5",
    "slate": "#6b8e9f",
    "coral": "#f2726f",
    "moss": "#4a7023",
    "tan": "#b08968",
    "lime": "#94d82d",
    "petrol": "#1c6e7d",
    "crimson": "#a61e4d",
    "blush": "#f7a8cd",
}
COLOURS = tuple(PALETTE.values())


def slot(name: str) -> int | None:
    """A number of the method whose name, preset, title or label this is: its colour is COLOURS[slot % 24].

    None for FullKV, which has the colour of the text. A method's presets have its colour, since their titles begin with
    its own. Where no file states a colour for a name, its number depends on the name alone.
    """
    plain = _plain(titled(name))
    if plain in ("full", "fullkv"):
        return None
    numbers = _stated()
    if beginnings := [method for method in numbers if plain.startswith(method)]:
        return numbers[max(beginnings, key=len)]
    return zlib.crc32(_plain(name.partition(" ")[0]).encode()) % (len(COLOURS) * 1000)


def _stated() -> dict[str, int]:
    """The number in PALETTE of each colour that a file states, by the plain name and title of its method or engine."""
    order = [*PALETTE]
    numbers: dict[str, int] = {}
    for group in ("method", "engine"):
        titles = stated(group, "title")
        for name, colour in stated(group, "colour").items():
            if colour and colour not in PALETTE:
                raise UserError(f"{file_of(group, name)}: colour={colour!r} is none of {', '.join(PALETTE)}")
            if colour:
                numbers[_plain(name)] = numbers[_plain(titles[name] or name)] = order.index(colour)
    return numbers


def colour(name: str, full: str = "#000000") -> str:
    """The colour of a method; `full` for FullKV's."""
    number = slot(name)
    return full if number is None else COLOURS[number % len(COLOURS)]


def places(names: Iterable[str], count: int) -> dict[str, int]:
    """A place among `count` marks or hatches for each name: its slot's, or the next one that no earlier name has.

    Where there are more names than places they begin again.
    """
    chosen: dict[str, int] = {}
    for number, name in enumerate(dict.fromkeys(names)):
        taken = set(list(chosen.values())[number // count * count :])
        place = (slot(name) or 0) % count
        while place in taken:
            place = (place + 1) % count
        chosen[name] = place
    return chosen


def _plain(name: str) -> str:
    """`Expected Attention 0.2` begins with `expected_attention`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
