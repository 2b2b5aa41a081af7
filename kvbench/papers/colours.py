"""A colour and a mark for each method in every figure and on every page, by its name and never by its order."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvbench.configuration.conf import file_of, titled
from kvbench.configuration.conf import stated as described
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


class Look(NamedTuple):
    """What tells a method from all others of one picture: no two of them have the same colour and mark."""

    colour: str | None  # #rrggbb; None for FullKV, which has the colour of the text
    mark: int
    turn: int  # how many others of the picture have had the mark: each turn goes with another line


class _Own(NamedTuple):
    """A name's place in PALETTE (None for FullKV), and its number among the methods of that colour."""

    place: int | None
    number: int


def colour(name: str, full: str = "#000000") -> str:
    """The colour of the method whose name, preset, title or label this is; `full` for FullKV's.

    A method's presets have its colour, since their titles begin with its own. Where no file states a colour for a name,
    it depends on the name alone.
    """
    place = _own(name, _stated()).place
    return full if place is None else COLOURS[place]


def looks(names: Iterable[str], marks: int) -> dict[str, Look]:
    """A look for each name of one picture that has so many marks or hatches; the order of the names does not matter.

    Each has its method's colour and its own mark where that is free, else the next of those that fewest others have.
    Where more than `marks` names have one colour, the others have the next one of the palette.
    """
    stated = _stated()
    own = {name: _own(name, stated) for name in dict.fromkeys(names)}
    chosen: dict[str, Look] = {}
    taken: set[tuple[str | None, int]] = set()
    uses = [0] * marks
    for name in sorted(own, key=lambda name: (own[name].place is not None, *own[name], _plain(name), name)):
        place, number = own[name]
        first = 0 if place is None else 2 + 3 * place + number  # so, the methods that are compared most differ
        order = [(first + step) % marks for step in range(marks)]
        pairs = [(each, mark) for each in _from(place) for mark in sorted(order, key=uses.__getitem__)]
        pair = next((pair for pair in pairs if pair not in taken), pairs[0])
        taken.add(pair)
        chosen[name] = Look(*pair, uses[pair[1]])
        uses[pair[1]] += 1
    return {name: chosen[name] for name in own}


def _from(place: int | None) -> tuple[str | None, ...]:
    return (None,) if place is None else (*COLOURS[place:], *COLOURS[:place])


def _own(name: str, stated: Mapping[str, _Own]) -> _Own:
    plain = _plain(titled(name))
    if plain in ("full", "fullkv"):
        return _Own(None, 0)
    if beginnings := [method for method in stated if plain.startswith(method)]:
        return stated[max(beginnings, key=len)]
    number, place = divmod(zlib.crc32(_plain(name.partition(" ")[0]).encode()), len(COLOURS))
    return _Own(place, number)


def _stated() -> dict[str, _Own]:
    """What the files of methods and engines state, by the plain name and title of each."""
    order = [*PALETTE]
    every: dict[str, _Own] = {}
    having: Counter[str] = Counter()
    for group in ("method", "engine"):
        titles = described(group, "title")
        for name, colour in described(group, "colour").items():
            if colour and colour not in PALETTE:
                raise UserError(f"{file_of(group, name)}: colour={colour!r} is none of {', '.join(PALETTE)}")
            if colour:
                mine = _Own(order.index(colour), having[colour])
                every[_plain(name)] = every[_plain(titles[name] or name)] = mine
                having[colour] += 1
    return every


def _plain(name: str) -> str:
    """`Expected Attention 0.2` begins with `expected_attention`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
