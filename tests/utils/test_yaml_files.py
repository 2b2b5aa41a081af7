"""YAML of the user's: read within limits, with faults as one line."""

import os

import pytest
from omegaconf import OmegaConf

from kvbench.errors import UserError
from kvbench.utils.yaml_files import LARGEST, MOST, read_yaml

LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
FAULTS = {
    "an open list": ("about: [", "is not YAML: line 1: expected the node content, but found '<stream end>'"),
    "a colon too many": ("a: b: c", "is not YAML: line 1: mapping values are not allowed here"),
    "a Python object": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor for the tag"),
    "a value inside itself": ("a: &a [*a]", "line 1: a value that contains itself"),
    "no characters": ("\x00\x01", "is not YAML: "),
    "billions by aliases": (f"a0: &a0 x\n{LAUGHS}", f"more than {MOST:,} values, counting those of aliases"),
    "lists in lists": ("[" * 5000, "is not YAML that can be read: nested too deeply"),
    "an unknown alias": ("a: *b", "line 1: found undefined alias"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("text, message", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_line_that_names_the_file(text, message, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path} ") and message in str(error.value)


def test_a_file_that_is_too_large_or_no_text_is_one_line(tmp_path):
    (tmp_path / "large.yaml").touch()
    os.truncate(tmp_path / "large.yaml", LARGEST + 1)
    with pytest.raises(UserError, match=r"large.yaml cannot be read: larger than 1,048,576 bytes"):
        read_yaml(tmp_path / "large.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UserError, match=r"bytes.yaml is not "):
        read_yaml(tmp_path / "bytes.yaml")


def test_aliases_in_measure_are_fine(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1}\nc: [*a, *a]\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}]}


def test_numbers_and_dates_are_read_as_hydra_reads_them(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 8.03e9\nb: 1e-3\nc: 2024-13-45\nd: e5\n")
    assert read_yaml(path) == {"a": 8.03e9, "b": 1e-3, "c": "2024-13-45", "d": "e5"}
    assert read_yaml(path) == OmegaConf.to_container(OmegaConf.load(path))
