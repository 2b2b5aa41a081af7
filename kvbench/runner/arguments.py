"""The command line as typed: Hydra's options, and `--config-dir`, which may stand in any position."""

from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from kvbench.errors import UserError, unknown

CONFIG_DIR = ("--config-dir", "-cd")


def keys() -> list[str]:
    """The configuration's keys, as the command line has them."""
    from kvbench.configuration.configuration import every_key  # brings pydantic, which --help does without

    return every_key()


def is_word(argument: str) -> bool:
    """Whether an argument is neither an option nor an override of the configuration (KEY=VALUE, +KEY=VALUE, ~KEY)."""
    return "=" not in argument and not argument.startswith(("-", "+", "~"))


def without_config_dir(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder of --config-dir FOLDER, --config-dir=FOLDER or -cd, and the other arguments."""
    folder, rest = None, []
    left = iter(arguments)
    for argument in left:
        key, equals, value = argument.partition("=")
        if key not in CONFIG_DIR:
            rest.append(argument)
            continue
        value = value if equals else next(left, "")
        if not value:
            raise UserError(f"{key} needs a folder: {key} FOLDER, with method/NAME.yaml, model/NAME.yaml and so on")
        if folder is not None:
            raise UserError(f"{key} {value}: {folder} is given too, and only one folder of configuration is allowed")
        folder = Path(value)
    return folder, rest


def options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments of a run with options in front, as Hydra needs them.

    Raises UserError for an unknown option, and for a word that is neither KEY=VALUE nor an option's value.
    """
    known = {name: action for action in get_args_parser()._actions for name in action.option_strings}
    options, overrides, takes_value = [], [], False
    for place, argument in enumerate(arguments):
        name, equals, _ = argument.partition("=")
        if is_word(argument) and takes_value:
            options.append(argument)
        elif is_word(argument):
            raise UserError(f"{argument!r} is not KEY=VALUE, and a command must come first: kvbench COMMAND …")
        elif not argument.startswith("-"):
            overrides.append(argument)
        elif name in known:
            options.append(argument)
        elif (key := name.lstrip("-")) in keys():
            following = next((one for one in arguments[place + 1 :][:1] if is_word(one)), "VALUE")
            value = argument.partition("=")[2] or following
            raise UserError(f"{argument}: a key has no dashes: write {key}={value}")
        else:
            raise unknown("option", name, (name for name in known if name.startswith("--")))
        takes_value = name in known and known[name].nargs != 0 and not equals
    return options + overrides
