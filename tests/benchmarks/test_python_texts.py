"""Texts are read from Python source that is not run."""

import pytest

from kvbench.benchmarks.python_texts import constants, proven, sha256
from kvbench.errors import UserError

SOURCE = r"""
import a_package_that_is_missing
ONE = 'a {x} ' \
      'b'
TWO = f'{ONE}\n{{y}}'
MADE = ONE.upper() + undefined()
ALSO = f'{MADE}'
TABLE = {'k': ('p' 'q'), 'n': [1, 2]}
LATER, PAIR = 1, 2
raise SystemExit(3)
"""


def test_literals_and_f_strings_of_them_are_read_and_nothing_is_run(tmp_path):
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    assert constants(path) == {"ONE": "a {x} b", "TWO": "a {x} b\n{y}", "TABLE": {"k": "pq", "n": [1, 2]}}


@pytest.mark.parametrize(
    "content, message", [(None, "cannot be read"), (b"x = (", "is not Python"), (b"\xff", "is not")]
)
def test_a_file_that_is_no_python_is_named(tmp_path, content, message):
    path = tmp_path / "source.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"benchmark.prompts_file='.*source.py' {message}"):
        constants(path)


def test_a_text_is_proven_by_its_hash(tmp_path):
    assert proven("a prompt", "text", sha256("text"), tmp_path) == "text"
    with pytest.raises(
        UserError, match=r"a prompt in .* is not the official one: its SHA-256 begins 982d9e3eb996f559, not ab"
    ):
        proven("a prompt", "text", "ab" * 32, tmp_path)
