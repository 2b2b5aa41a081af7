"""A method file that is edited between two runs of a folder: one line says so, unless its records get other keys."""

import hashlib
import sys
from types import ModuleType

import pytest

from kvbench.errors import UserError
from kvbench.records import load
from tests.support.command import kvbench
from tests.support.runs import arguments, manifests, run

# Whole runs, some of which leave records of two versions in one folder.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:.*with several rows")]

SCORER = """from dataclasses import dataclass

from kvbench.methods import Scoring


@dataclass
class Norms(Scoring):
    window = 8

    def votes(self, layer):
        norms = layer.keys.float().norm(dim=-1)
        return SIGN * norms.repeat_interleave(layer.num_attention_heads // len(norms), dim=0)
"""
METHOD = """from dataclasses import dataclass, field

from edited_scorer import Norms
from kvbench.methods import Eviction, Scoring


@dataclass
class Edited(Eviction):
    version = VERSION
    scoring: Scoring = field(default_factory=Norms)
"""
WARNING = (
    "edited_scorer.py changed since records of this folder were made: raise the `version` of its class, or choose "
    "another output_dir"
)


@pytest.fixture
def edited(tiny_folder, tmp_path, monkeypatch):
    """Run the method with an edited file; the folder."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which an edit within a second would not replace

    def run_with(*more: str, sign: int = 1, version: int = 1):
        (tmp_path / "edited_scorer.py").write_text(SCORER.replace("SIGN", f"{sign}"))
        (tmp_path / "edited_method.py").write_text(METHOD.replace("VERSION", f"{version}"))
        for name in ("edited_scorer", "edited_method"):
            sys.modules.pop(name, None)
        given = ["method=full", "method._target_=edited_method.Edited", "ratio=0.2", "benchmark.depths=[50]", *more]
        return run(*arguments(tiny_folder, tmp_path / "out", *given))

    return run_with


def test_a_manifest_has_the_hashes_of_the_users_files_and_verify_takes_it(edited, tmp_path, capsys):
    (manifest,) = manifests(folder := edited())
    hashes = {
        name: hashlib.sha256((tmp_path / f"{name}.py").read_bytes()).hexdigest()
        for name in ("edited_method", "edited_scorer")
    }
    assert manifest["own_code"] == hashes
    del sys.modules["edited_method"], sys.modules["edited_scorer"]
    capsys.readouterr()
    assert kvbench("verify", str(folder), "--out", str(tmp_path / "verify.html")) == 0
    assert " wrong " not in capsys.readouterr().out and "edited_method" not in sys.modules


def test_a_run_of_kvbenchs_own_classes_has_no_such_hashes(tiny_folder, tmp_path):
    folder = run(*arguments(tiny_folder, tmp_path, "method=full", "benchmark.depths=[50]"))
    assert "own_code" not in manifests(folder)[0]


def test_an_edited_file_is_named_in_one_line_for_as_long_as_its_old_records_are_there(edited, capsys):
    edited()
    assert edited() and "changed since" not in capsys.readouterr().err
    edited(sign=-1)
    assert WARNING in " ".join(capsys.readouterr().err.split())
    edited()  # as it was: the run in between has made no records
    assert "changed since" not in capsys.readouterr().err


def test_a_raised_version_of_the_method_makes_new_records_without_the_line(edited, capsys):
    edited()
    folder = edited(sign=-1, version=2)
    assert "changed since" not in capsys.readouterr().err and len(load(folder)) == 3


def test_other_methods_of_the_folder_are_not_warned(edited, tiny_folder, tmp_path, capsys):
    edited()
    (tmp_path / "edited_scorer.py").write_text("")
    run(*arguments(tiny_folder, tmp_path / "out", "method=[full,snapkv]", "ratio=0.2", "benchmark.depths=[50]"))
    assert "changed since" not in capsys.readouterr().err


def test_a_file_that_was_edited_after_its_class_was_imported_is_refused(edited, tiny_folder, tmp_path):
    edited()
    (tmp_path / "edited_scorer.py").write_text(SCORER.replace("SIGN", "-1"))
    given = ["method=full", "method._target_=edited_method.Edited", "ratio=0.3", "benchmark.depths=[50]"]
    with pytest.raises(UserError, match=r"edited_scorer.py changed after it was imported: restart Python"):
        run(*arguments(tiny_folder, tmp_path / "out", *given))


def test_a_class_of_a_notebook_is_in_no_file_and_its_earlier_records_are_named(
    tiny_folder, tmp_path, monkeypatch, capsys
):
    """They may be those of a cell before it was edited: kvbench.run would return them as the edited one's."""
    notebook = ModuleType("__main__")  # as a kernel has it: without a file
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    given = ["method=full", "method._target_=__main__.Edited", "ratio=0.2", "benchmark.depths=[50]"]
    for version, warned in ((1, False), (1, True), (2, False)):
        for cell in (SCORER.replace("SIGN", "1"), METHOD.replace("from edited_scorer import Norms\n", "")):
            exec(cell.replace("VERSION", f"{version}"), vars(notebook))
        folder = run(*arguments(tiny_folder, tmp_path / "out", *given))
        said = " ".join(capsys.readouterr().err.split())
        assert ("Edited is in no file, so an edit since records of this folder were made is not seen" in said) == warned
        assert ("Norms is in no file" in said) == warned
    assert "own_code" not in manifests(folder)[0]
