"""What a check says about a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5  # problems of one check that are shown


class Verdict(StrEnum):
    """From best to worst."""

    PROVEN = (
        "proven"  # recomputed here from the folder's predictions, the benchmark, the model's files or kvbench itself
    )
    PLAUSIBLE = "plausible"  # the folder agrees with itself and with what is possible
    UNPROVEN = "unproven"  # something that the check needs is not here
    WRONG = "wrong"  # a contradiction, or something impossible


@dataclass(frozen=True)
class Check:
    """One check of a folder; `notes` are the problems, or what is missing for a better verdict."""

    name: str
    verdict: Verdict
    about: str  # what was compared with what
    notes: tuple[str, ...] = ()
    again: int = 0  # answers that were made again here


def judged(
    name: str,
    about: str,
    wrong: Sequence[str] = (),
    missing: Sequence[str] = (),
    otherwise: Verdict = Verdict.PLAUSIBLE,
) -> Check:
    """WRONG with the problems, else UNPROVEN with what is missing, else `otherwise`."""
    if wrong:
        return Check(name, Verdict.WRONG, about, shortened(wrong))
    if missing:
        return Check(name, Verdict.UNPROVEN, about, shortened(missing))
    return Check(name, otherwise, about)


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, each once, and how many more there are."""
    lines = list(dict.fromkeys(lines))
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return (*lines[:SHOWN], *more)
