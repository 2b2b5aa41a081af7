"""Haystacks: texts from a folder, or generated ones that need no download."""

import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.files import visible
from kvbench.utils.links import held
from kvbench.utils.regular_files import read_text

# The generated haystack: plain sentences without digits or cities, so that no needle occurs by chance.
_PEOPLE = (
    "the gardener|the old teacher|a young sailor|the night watchman|her neighbour|the baker's daughter|"
    "a travelling painter|the clockmaker|my uncle|the librarian|a quiet student|the ferry captain|"
    "the piano tuner|an apprentice|the village doctor|the beekeeper"
)
_VERBS = (
    "described|remembered|repaired|painted|looked after|wrote about|walked around|dreamed of|measured|"
    "photographed|swept|admired|worried about|talked about|sketched|discovered"
)
_ADJECTIVES = (
    "abandoned|narrow|sunlit|crowded|silent|crooked|famous|half-finished|windy|green|dusty|forgotten|"
    "cheerful|stone|wooden|well-kept"
)
_PLACES = (
    "orchard|bridge|harbour|workshop|library|courtyard|mill|railway station|greenhouse|lighthouse|market|"
    "theatre|footpath|bakery|cellar|meadow"
)
_TIMES = (
    "in early spring|before breakfast|during the long strike|after the rain had stopped|on market days|"
    "late in the evening|when the school was closed|in the year of the great frost|at harvest time|"
    "while the kettle boiled|every other week|shortly before the concert"
)
_ENDS = (
    "and nobody asked why|although the door was locked|and then went home|which surprised everyone|"
    "but never spoke of it again|as people there still do|because there was little else to do|"
    "and wrote a letter about it|with more patience than skill|to the delight of the children"
)
_TEMPLATES = (
    "{time}, {person} {verb} the {adjective} {place}.",
    "{person} {verb} the {adjective} {place} {time}, {end}.",
    "The {place} was {adjective}, and {person} {verb} it {time}.",
    "{person} and {other} {verb} the {place} {time}.",
    "Behind the {place} stood another, more {adjective}, that {person} {verb}, {end}.",
)
_WORDS = {
    "person": _PEOPLE,
    "other": _PEOPLE,
    "verb": _VERBS,
    "adjective": _ADJECTIVES,
    "place": _PLACES,
    "time": _TIMES,
    "end": _ENDS,
}


def generated(seed: int) -> Iterator[str]:
    """Endless sentences from a fixed grammar; a seed always gives the same ones."""
    rng = random.Random(seed)
    choices = {slot: words.split("|") for slot, words in _WORDS.items()}
    while True:
        filled = {slot: rng.choice(words) for slot, words in choices.items()}
        sentence = rng.choice(_TEMPLATES).format(**filled)
        yield sentence[0].upper() + sentence[1:] + " "


def files_of(folder: str) -> list[Path]:
    """The text files of a folder in the order of their names.

    Raises UserError if there are none, or where one is a link out of the folder.
    """
    files = [held(path, Path(folder)) for path in visible(Path(folder), "*.txt") if path.is_file()]
    if not files:
        raise UserError(f"benchmark.haystack_dir={folder!r} is not a folder with .txt files")
    return files


def from_folder(folder: str, seed: int, separator: str = "\n") -> Iterator[str]:
    """The texts of a folder in the order of their names, endlessly, from text number `seed` on."""
    files = files_of(folder)
    start = seed % len(files)
    try:
        texts = [read_text(file) for file in files[start:] + files[:start]]
    except UnicodeDecodeError as error:
        raise UserError(f"a haystack text in {folder} is not UTF-8: {error}") from error
    except OSError as error:
        raise UserError(f"a haystack text in {folder} cannot be read: {error.strerror}") from error
    if not any(text.strip() for text in texts):
        raise UserError(f"benchmark.haystack_dir={folder!r} holds only empty texts")
    return cycle(text + separator for text in texts)
