"""The command line of a run as typed: KEY=VALUE and options in any order, and `--config-dir`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.errors import UserError, unknown
from kvbench.utils.arguments import Parser
from kvbench.utils.other_words import WORDS

CONFIG_DIR = ("--config-dir", "-cd")


def keys() -> list[str]:
    """The configuration's keys, as on the command line."""
    from kvbench.configuration.configuration import every_key  # brings pydantic, which --help does without

    return every_key()


def is_word(argument: str) -> bool:
    """Whether an argument is neither an option nor an override of the configuration (KEY=VALUE, +KEY=VALUE, ~KEY)."""
    return "=" not in argument and not argument.startswith(("-", "+", "~"))


def without_config_dir(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder of --config-dir FOLDER, --config-dir=FOLDER or -cd, and the other arguments."""
    folder, others = None, []
    remaining = iter(arguments)
    for argument in remaining:
        key, equals, value = argument.partition("=")
        if key not in CONFIG_DIR:
            others.append(argument)
            continue
        value = value if equals else next(remaining, "")
        if not value:
            raise UserError(f"{key} needs a folder: {key} FOLDER, with method/NAME.yaml, model/NAME.yaml and so on")
        if folder is not None:
            raise UserError(f"{key} {value}: {folder} is given too, and only one folder of configuration is allowed")
        folder = Path(value)
    return folder, others


def check_slips(arguments: Sequence[str]) -> None:
    """Raise UserError for `ratio = 0.2` and for a list without its key; the message has the correction."""
    first, second, third = [*arguments, "", "", ""][:3]
    if second.startswith("=") and first in keys():
        value = second.removeprefix("=") or third or "VALUE"
        raise UserError(f"{' '.join(arguments[:3])}: write {first}={value} without blanks")
    if first.startswith("["):
        raise UserError(f"{first!r} is a list without a key: write 'method={first.rstrip(']')}]', in quotes")


# Options of a run. Those in EXCLUSIVE exclude each other, and all of them but -m make Hydra answer instead of a run.
EXCLUSIVE: dict[tuple[str, ...], dict[str, Any]] = {
    ("-m", "--multirun"): {"action": "store_true"},
    ("-c", "--cfg"): {"choices": ("job", "hydra", "all")},
    ("-i", "--info"): {"nargs": "?", "const": "all"},
    ("-sc", "--shell-completion"): {"action": "store_true"},
    ("--hydra-help",): {"action": "store_true"},
}
FURTHER: dict[tuple[str, ...], dict[str, Any]] = {
    ("-p", "--package"): {},
    ("--resolve",): {"action": "store_true"},
    ("-h", "--help"): {"action": "store_true"},
    ("--version",): {"action": "store_true"},
}


class Typed(NamedTuple):
    """The arguments of a run."""

    options: Namespace
    overrides: list[str]
    for_hydra: list[str]  # options, with their values, that Hydra answers instead of a run


def typed(arguments: Sequence[str]) -> Typed:
    """The arguments of a run, parsed.

    Raises UserError for an unknown option, and for a word that is neither KEY=VALUE nor an option's value.
    """
    parser = Parser("", "", add_help=False)
    parser.overrides("the configuration")
    for group, table in ((parser.add_mutually_exclusive_group(), EXCLUSIVE), (parser, FURTHER)):
        for names, kinds in table.items():
            group.add_argument(*names, **kinds)
    values, unread = parser.parse_known_intermixed_args(arguments)
    for place, argument in enumerate(arguments):
        if argument in unread:
            raise _unknown(argument, arguments[place + 1 :])
    overrides: list[str] = values.overrides
    if not values.help and (words := list(filter(is_word, overrides))):
        raise UserError(f"{words[0]!r} is not KEY=VALUE, and a command must come first: kvbench COMMAND …")
    hydra_answers = values.cfg or values.info or values.shell_completion or values.hydra_help
    options = [argument for argument in arguments if argument not in overrides] if hydra_answers else []
    return Typed(values, overrides, options)


def _unknown(option: str, following: Sequence[str]) -> UserError:
    name, equals, value = option.partition("=")
    if (key := name.lstrip("-")) in WORDS:
        return UserError(f"unknown option {option!r}. It is {WORDS[key]}")
    if key in keys():
        value = value if equals else next(filter(is_word, following[:1]), "VALUE")
        return UserError(f"{option}: a key has no dashes: write {key}={value}")
    return unknown("option", name, [CONFIG_DIR[0], *(names[-1] for names in (*EXCLUSIVE, *FURTHER))])
