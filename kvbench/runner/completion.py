"""Completion of kvbench's commands in a shell; Hydra completes overrides."""

import os
from collections.abc import Sequence

from kvbench.runner.arguments import CONFIG_DIR
from kvbench.runner.commands import commands

LINE = "COMP_LINE"  # the variable with the line that a shell completes


def with_config_dir_of_line(arguments: Sequence[str]) -> list[str]:
    """The arguments of a shell's `-sc query=SHELL`, with the `--config-dir FOLDER` of the line that is completed.

    It is removed from the line, since Hydra looks for overrides alone there. Other arguments stay as they are.
    """
    if not _asked(arguments):
        return [*arguments]
    begun = len(words := os.environ.get(LINE, "").split(" ")) - 1  # the last word is being typed
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        end = place + (1 if equals else 2)
        if key in CONFIG_DIR and end <= begun and (value := value if equals else words[place + 1]):
            os.environ[LINE] = " ".join([*words[:place], *words[end:]])
            return [*arguments, key, value]
    return [*arguments]


def complete_commands(arguments: Sequence[str]) -> bool:
    """Print the commands that complete the line of a shell's `-sc query=SHELL`. Returns whether overrides follow.

    A command at the beginning of the line is removed from it, since Hydra knows no commands.
    """
    if not _asked(arguments):
        return True
    line = os.environ.get(LINE, "")
    program, *words = line.split() or [""]
    begun = bool(words) and not line.endswith(" ")
    if len(words) == int(begun):
        typed = words[0] if words else ""
        print("\n".join(name for name in commands() if name.startswith(typed)))
    elif words[0] in commands():
        os.environ[LINE] = " ".join([program, *words[1:], *([] if begun else [""])])
        return commands()[words[0]].overrides  # arguments of the others are files and folders, which shells complete
    return True


def _asked(arguments: Sequence[str]) -> bool:
    return "-sc" in arguments and any(argument.startswith("query=") for argument in arguments)
