"""Messages of other libraries become one line that says what is wrong."""

import pytest

from kvbench.utils.text import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such file\nTraceback …", "no such file"),
        (
            "\n  Class validation error for 'sizes':\n    ValueError: 3 is odd\nmore",
            "Class validation error for 'sizes': ValueError: 3 is odd",
        ),
        ("reason:", "reason:"),
        ("\n \n", "OSError"),
    ],
)
def test_a_first_line_that_announces_the_next_takes_it(message, line):
    assert first_line(OSError(message)) == line


def test_the_key_of_a_key_error_is_said_to_be_one():
    """A GGUF file without merges or scores could not be converted because of "'scores'"."""
    assert first_line(KeyError("scores")) == "KeyError: 'scores'"
