"""The parser of every command: its help in one style, its errors as one line, and KEY=VALUE beside its arguments."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NoReturn

from kvbench.errors import UserError
from kvbench.utils.lines import columns, fitted

WIDEST = 120  # characters of a line, on any terminal


@dataclass(frozen=True)
class Setting:
    """A value that a command takes as NAME=VALUE, among the overrides of the configuration."""

    read: Callable[[str], Any]
    default: Any
    several: bool  # whether each NAME=VALUE adds to a list; else the last one counts

    def value(self, texts: Sequence[str]) -> Any:
        values = [self.read(text) for text in texts]
        if self.several:
            return [item for value in values for item in value]
        return values[-1] if values else self.default


class Parser(argparse.ArgumentParser):
    """An argparse parser of `kvbench COMMAND`, for `parse`. Raises UserError for wrong arguments."""

    def __init__(self, command: str, about: str, more: str | Callable[[], str] = "", **options: Any):
        """`more` is printed below the arguments, as `fitted` breaks it; a function is called when help is printed."""
        super().__init__(
            prog=f"kvbench {command}".strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )
        self._positionals.title = "arguments"
        self.about, self.more = about, more
        self.settings: dict[str, Setting] = {}

    def overrides(self, about: str) -> None:
        """Take KEY=VALUE of the configuration, as a run does, into `overrides`."""
        self.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=about)

    def setting(
        self, example: str, about: str, read: Callable[[str], Any] = str, default: Any = None, several: bool = False
    ) -> None:
        """Take a value of the command's own as NAME=VALUE, such as `example`. Call `overrides` first."""
        name = example.partition("=")[0]
        self.settings[name] = Setting(read, default, several)
        # for the help only: `overrides` is greedy and takes all arguments
        self.add_argument(name, nargs="?", metavar=example, help=about)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values of all arguments; options and other arguments may come in any order."""
        texts: dict[str, list[str]] = {name: [] for name in self.settings}
        others = []
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if equals and name in texts:
                texts[name].append(value)
            else:
                others.append(argument)
        options = self.parse_intermixed_args(others)
        for name, setting in self.settings.items():
            try:
                setattr(options, name, setting.value(texts[name]))
            except argparse.ArgumentTypeError as error:
                raise UserError(f"{name}={error}") from error
        return options

    def format_help(self) -> str:
        width = min(columns(), WIDEST)
        self.description = fitted(self.about, width)
        self.epilog = fitted(self.more if isinstance(self.more, str) else self.more(), width)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} ({self.prog} --help)")


def number(low: float, high: float, rule: str) -> Callable[[str], float]:
    """A reader of numbers from `low` to `high`, both included, as `type=` of an argument or `read` of a setting.

    It raises ArgumentTypeError for any other text; `rule` completes the message ("must be a number from 0 to 1").
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} {rule}")
        return value

    return read


def word(text: str) -> str:
    """An argument without "=". Raises ArgumentTypeError for KEY=VALUE."""
    if "=" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is KEY=VALUE, which comes later")
    return text
