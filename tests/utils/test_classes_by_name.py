"""Classes are found by their names in the files of a package: a new file needs no line anywhere."""

import sys

import pytest

from kvbench.utils.classes_by_name import class_below, places


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a package of three files, none of which is imported yet."""
    folder = tmp_path / "things_by_name"
    (folder / "thing").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "thing" / "__init__.py").write_text("class Folder: ...\n")
    (folder / "thing" / "scoring.py").write_text(
        "class Score:\n    class Inner: ...\n\nclass Both: ...\nclass _Own: ...\n"
    )
    (folder / "other.py").write_text("class Both: ...\nclass Other(dict): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, folder.name, __import__(folder.name))
    return folder.name


def test_a_class_is_imported_from_the_file_that_defines_it_and_no_other_file_is(package):
    assert class_below(package, "Score").__module__ == f"{package}.thing.scoring"
    assert class_below(package, "Folder").__module__ == f"{package}.thing"
    assert f"{package}.other" not in sys.modules
    assert sorted(places(package)) == ["Both", "Folder", "Other", "Score"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Nothing", "has no attribute 'Nothing'$"),
        ("_Own", "has no attribute '_Own'$"),
        ("Inner", "has no attribute 'Inner'$"),
        ("Both", "'Both': things_by_name.other and things_by_name.thing.scoring each have one$"),
    ],
)
def test_a_name_of_no_class_or_of_two_is_an_attribute_error(package, name, why):
    with pytest.raises(AttributeError, match=why):
        class_below(package, name)
