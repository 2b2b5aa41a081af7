"""The parser of commands: values as NAME=VALUE among overrides, options anywhere, mistakes as UserError."""

import pytest

from kvbench.errors import UserError
from kvbench.utils.arguments import Parser, word


def parser() -> Parser:
    made = Parser("draw", "Draw it.", lambda: "below: as\nit is\n  so")
    made.add_argument("--dark", action="store_true", help="on black")
    made.add_argument("file", metavar="FILE", type=word, help="what to draw")
    made.overrides("of the run")
    made.setting("width=80", "of the drawing", int, 80)
    made.setting("from=FOLDER", "where records are", lambda text: text.split("+"), several=True)
    return made


def test_values_of_the_command_are_told_from_overrides_in_any_order():
    given = parser().parse(["page", "a=1", "from=x+y", "--dark", "width=3", "b.width=2", "from=z", "+c=3", "~d"])
    assert (given.file, given.overrides) == ("page", ["a=1", "b.width=2", "+c=3", "~d"])
    assert (given.width, getattr(given, "from"), given.dark) == (3, ["x", "y", "z"], True)
    least = parser().parse(["page"])
    assert (least.overrides, least.width, getattr(least, "from"), least.dark) == ([], 80, [], False)


def test_help_lists_all_of_them():
    text = parser().format_help()
    assert " ".join(text.split()).startswith("usage: kvbench draw [-h] [--dark] FILE [KEY=VALUE ...] [width=80]")
    assert "\narguments:\n" in text and "  width=80 " in text and text.endswith("\nbelow: as it is\n  so\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], r"the following arguments are required: FILE \(kvbench draw --help\)"),
        (["a=1"], "argument FILE: 'a=1' is KEY=VALUE, which comes later"),
        (["page", "--drak"], "unrecognized arguments: --drak"),
        (["page", "--d"], "unrecognized arguments: --d"),
    ],
)
def test_a_mistake_is_one_line(arguments, said):
    with pytest.raises(UserError, match=said):
        parser().parse(arguments)
