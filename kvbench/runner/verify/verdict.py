"""The verdict of a check about a folder."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kvbench.utils.text import in_one_line

SHOWN = 5  # problems of each check
LONGEST = 1000  # characters of a problem


class Verdict(StrEnum):
    """From best to worst."""

    # recomputed here from the folder's predictions, the benchmark, the model's files or kvbench itself
    PROVEN = "proven"
    PLAUSIBLE = "plausible"  # the folder is consistent, and its values are possible
    UNPROVEN = "unproven"  # something that the check needs is not here
    WRONG = "wrong"  # a contradiction, or something impossible


@dataclass(frozen=True)
class Check:
    """One check of a folder; `notes` are its problems, or reasons against a better verdict."""

    name: str
    verdict: Verdict
    about: str  # the two sides of the comparison
    notes: tuple[str, ...] = ()
    again: int = 0  # answers that were made again here


class Note(NamedTuple):
    """A line of a check: a contradiction (WRONG), or something that could not be compared (UNPROVEN)."""

    verdict: Verdict
    text: str


def wrong(text: str) -> Note:
    return Note(Verdict.WRONG, text)


def missing(text: str) -> Note:
    """The reason for a comparison that is left out. Every omission yields a note, so that no value of a folder turns a
    check off unseen."""
    return Note(Verdict.UNPROVEN, text)


@dataclass
class Findings:
    """The notes of one check while it goes through a folder."""

    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: dict[Note, list[str]] = field(default_factory=dict)  # with the names of the records they are about

    def collect(self, about: str, compare: Callable[..., Iterable[Note]], *arguments: Any) -> None:
        """Add the notes of `compare(*arguments)`, and a note for values that it cannot compare."""
        try:
            for note in compare(*arguments):
                self.notes.setdefault(note, []).append(about)
        except Exception as error:  # a stranger's values can have any type and size
            what = f"cannot be compared ({type(error).__name__}: {in_one_line(error)[:200]})"
            self.notes.setdefault(missing(what), []).append(about)

    def judged(self, name: str, about: str, otherwise: Verdict = Verdict.PLAUSIBLE) -> Check:
        """The check, with a line for each note: the first record that it is about and the number of others."""
        lines: dict[Verdict, list[str]] = {Verdict.WRONG: [*self.wrong], Verdict.UNPROVEN: [*self.missing]}
        for (verdict, text), names in self.notes.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            lines[verdict].append(f"{names[0]}{more}: {text}")
        return judged(name, about, lines[Verdict.WRONG], lines[Verdict.UNPROVEN], otherwise)


def judged(
    name: str,
    about: str,
    wrong: Sequence[str] = (),
    missing: Sequence[str] = (),
    otherwise: Verdict = Verdict.PLAUSIBLE,
) -> Check:
    """WRONG with the problems, else UNPROVEN with the omissions, else `otherwise`."""
    if wrong:
        return Check(name, Verdict.WRONG, about, shortened(wrong))
    if missing:
        return Check(name, Verdict.UNPROVEN, about, shortened(missing))
    return Check(name, otherwise, about)


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """The first distinct lines, and the number of others."""
    lines = list(dict.fromkeys(lines))
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in lines]
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return (*lines[:SHOWN], *more)
