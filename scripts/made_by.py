"""Which command made a file of results/: the table of results/README.md, read."""

import re
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).parents[1] / "results" / "README.md"


class Made(NamedTuple):
    """A row: patterns of files in results/, and what made them, as Markdown."""

    patterns: list[str]
    by: str

    @property
    def commands(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.by)


def made_by() -> list[Made]:
    rows = re.findall(r"^\| (`.+?`) \| (.+) \|$", README.read_text("utf-8"), re.MULTILINE)
    return [Made(re.findall(r"`([^`]+)`", files), by) for files, by in rows]


def commands_of(kind: str) -> list[str]:
    """Commands of one folder of scripts, each once, in the order of the table.

    A row that says of which commit its command is ("of commit …") is not made again by today's.
    """
    commands = [command for row in made_by() if " of commit " not in row.by for command in row.commands]
    return [command for command in dict.fromkeys(commands) if command.startswith(f"python -m scripts.{kind}.")]
