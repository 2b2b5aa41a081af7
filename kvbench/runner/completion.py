"""Completion of kvbench's commands in a shell; Hydra completes overrides."""

import os
from collections.abc import Sequence

from kvbench.runner.arguments import CONFIG_DIR, without_config_dir
from kvbench.runner.commands import commands

LINE = "COMP_LINE"  # the variable with the line that a shell completes


def with_config_dir_of_line(arguments: Sequence[str]) -> list[str]:
    """The arguments of a shell's `-sc query=SHELL`, with the `--config-dir FOLDER` of the line that is completed.

    It is removed from the line, since Hydra looks for overrides alone there. Other arguments stay as they are.
    """
    *words, typed = os.environ.get(LINE, "").split(" ")
    if not _asked(arguments) or (words and words[-1] in CONFIG_DIR):  # a folder is for the shell to complete
        return [*arguments]
    folder, others = without_config_dir(words)
    if folder is None:
        return [*arguments]
    os.environ[LINE] = " ".join([*others, typed])
    return [*arguments, CONFIG_DIR[0], str(folder)]


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
