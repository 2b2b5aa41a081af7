"""A colour and a mark for each method in every figure and on every page, by its name and not by its order."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvbench.configuration.conf import file_of, titled
from kvbench.configuration.conf import stated as described
from kvbench.errors import UserError

# The colours that a file of conf/method or conf/engine may state. They differ in hue and lightness, on white and on
# black. The first colours differ most and belong to the methods that papers compare most.
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
    """The look of a method in one picture: no two methods of a picture have the same colour and mark."""

    colour: str | None  # #rrggbb; None for FullKV, which has the colour of the text
    mark: int
    turn: int  # how many earlier methods of the picture have the mark: each turn has another line style


class _Choice(NamedTuple):
    """The place of a name's colour in PALETTE (None for FullKV), and its number among the methods of this colour."""

    place: int | None
    number: int


def looks(names: Iterable[str], marks: int) -> dict[str, Look]:
    """A look for each name of one picture with `marks` marks or hatches; the order of the names does not matter.

    A name is a method's name, preset, title or label. A method's presets have the method's colour, since their titles
    begin with its title. If no file states a colour for a name, the colour depends only on the name.

    A name has its method's colour, and its method's mark if the mark is free, otherwise the next of the marks that the
    fewest names have. If more than `marks` names have one colour, the others get the next colour of the palette.
    """
    stated = _stated()
    choices = {name: _choice(name, stated) for name in dict.fromkeys(names)}
    chosen: dict[str, Look] = {}
    taken: set[tuple[str | None, int]] = set()
    uses = [0] * marks
    for name in sorted(choices, key=lambda name: (choices[name].place is not None, *choices[name], _plain(name), name)):
        place, number = choices[name]
        first = 0 if place is None else 2 + 3 * place + number  # the methods that are compared most get different marks
        order = [(first + step) % marks for step in range(marks)]
        pairs = [(colour, mark) for colour in _from(place) for mark in sorted(order, key=uses.__getitem__)]
        pair = next((pair for pair in pairs if pair not in taken), pairs[0])
        taken.add(pair)
        chosen[name] = Look(*pair, uses[pair[1]])
        uses[pair[1]] += 1
    return {name: chosen[name] for name in choices}


def _from(place: int | None) -> tuple[str | None, ...]:
    return (None,) if place is None else (*COLOURS[place:], *COLOURS[:place])


def _choice(name: str, stated: Mapping[str, _Choice]) -> _Choice:
    plain = _plain(titled(name))
    if plain in ("full", "fullkv"):
        return _Choice(None, 0)
    if beginnings := [method for method in stated if plain.startswith(method)]:
        return stated[max(beginnings, key=len)]
    number, place = divmod(zlib.crc32(_plain(name.partition(" ")[0]).encode()), len(COLOURS))
    return _Choice(place, number)


def _stated() -> dict[str, _Choice]:
    """The colours that the files of methods and engines state, by the plain name and title of each."""
    order = [*PALETTE]
    every: dict[str, _Choice] = {}
    uses: Counter[str] = Counter()
    for group in ("method", "engine"):
        titles = described(group, "title")
        for name, colour in described(group, "colour").items():
            if colour and colour not in PALETTE:
                raise UserError(f"{file_of(group, name)}: colour={colour!r} is none of {', '.join(PALETTE)}")
            if colour:
                choice = _Choice(order.index(colour), uses[colour])
                every[_plain(name)] = every[_plain(titles[name] or name)] = choice
                uses[colour] += 1
    return every


def _plain(name: str) -> str:
    """The name in lower case without spaces and marks: `Expected Attention 0.2` begins with `expected_attention`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
