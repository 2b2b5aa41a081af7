"""Completion of kvbench's commands in a shell; Hydra completes overrides."""

import os
from collections.abc import Sequence

from kvbench.runner.commands import commands


def complete_commands(arguments: Sequence[str]) -> bool:
    """Print the commands that complete the line of a shell's `-sc query=SHELL`. Returns whether overrides follow.

    A command at the beginning of the line is removed from it, since Hydra knows no commands.
    """
    if "-sc" not in arguments or not any(argument.startswith("query=") for argument in arguments):
        return True
    line = os.environ.get("COMP_LINE", "")
    program, *words = line.split() or [""]
    begun = bool(words) and not line.endswith(" ")
    if len(words) == int(begun):
        typed = words[0] if words else ""
        print("\n".join(name for name in commands() if name.startswith(typed)))
    elif words[0] in commands():
        os.environ["COMP_LINE"] = " ".join([program, *words[1:], *([] if begun else [""])])
        return commands()[words[0]].overrides  # arguments of the others are files and folders, which shells complete
    return True
