"""Overrides as typed, KEY=VALUE: unreadable ones are refused with kvbench's messages before Hydra reads them."""

from collections import Counter
from collections.abc import Collection, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from kvbench.errors import UserError, unknown

LISTS = ("method", "probe")  # groups of which a run takes several, by their names
IN_ONE_RUN = (*LISTS, "ratio", "budget")  # keys of which one run takes several values; of their parts, each says so
CLOSING = {"[": "]", "{": "}", "(": ")"}


def check_overrides(overrides: Sequence[str], experiments: Collection[str] = (), several: bool = True) -> None:
    """Raise UserError for the first override that Hydra cannot read, or that would not have its apparent effect.

    `experiments`: names that may be typed without their key. `several`: a key may have several values, a run for each.
    """
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not override.startswith("~"):
            hint = f": write +experiment={override}" if override in experiments else ", such as ratio=0.2"
            raise UserError(f"{override!r} is not KEY=VALUE{hint}")
        if key == "experiment" and value != "null":
            if value not in experiments:
                raise unknown("experiment", value, experiments)
            raise UserError(f"{override}: an experiment is added with a plus: +experiment={value}")
        if key == "hydra.launcher" and value.isidentifier():
            raise UserError(f"{override}: a launcher is chosen with a slash: hydra/launcher={value}")
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException as error:
            raise UserError(f"{override} cannot be read: {_fault(key, value)}") from error
        if parsed.is_sweep_override() and not several:
            raise UserError(f"{override} has several values: {_several(key, value)}")
        names = parsed.value() if key in LISTS else None
        if isinstance(names, list) and (twice := [name for name, n in Counter(map(str, names)).items() if n > 1]):
            raise UserError(f"{override}: {key} {twice[0]!r} is named twice")


def _several(key: str, value: str) -> str:
    if key in IN_ONE_RUN or "." in key:
        return f"'{key}=[{value}]' puts them into one run, -m makes a run of each"
    return f"-m makes a run of each; a text with a comma stands in quotation marks: \"{key}='{value}'\""


def _fault(key: str, value: str) -> str:
    for opening, closing in CLOSING.items():
        if value.count(opening) != value.count(closing):
            return f"{opening} and {closing} do not match; quote the whole, so that the shell leaves it as it is"
    if any(value.count(quote) % 2 for quote in "'\""):
        return "a quotation mark is not closed"
    return f"a value with blanks or signs stands in quotation marks, within those of the shell: \"{key}='VALUE'\""
