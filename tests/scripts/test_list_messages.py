"""The list of messages has the texts of errors and printed lines, with what is filled in."""

from scripts.maintenance.list_messages import messages

SOURCE = """
def f(x):
    err.print("first" if x else f"second {x.name!r}")
    raise UserError(
        f"x={x!r} must be"
        " positive"
    )
    g("not a message")
    warn_once("a note")
    raise NotHere(f"no {x}") from None
"""


def test_messages_are_listed_in_order_as_they_are_read():
    assert list(messages(SOURCE)) == [
        (3, "first second {x.name}"),
        (4, "x={x} must be positive"),
        (9, "a note"),
        (10, "no {x}"),
    ]
