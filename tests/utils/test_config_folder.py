"""Folders of --config-dir: a file that will not do is one line, for a run and for every other command."""

import os

import pytest

from kvbench.configuration.conf import CONF
from kvbench.errors import UserError
from kvbench.utils.config_folder import check_folder
from tests.support.command import command_line

FORMS = {
    "a number as description": ("about: 5", "about=5 is not a text"),
    "a text as switch": ("short_help: first", "short_help='first' must be true or false"),
    "a mapping as title": ("title: {a: 1}", "title={'a': 1} is not a text"),
    "an open list": ("about: [", "is not YAML: line 1: expected the node content"),
    "a key twice": ("about: x\nabout: y", "is not YAML: line 2: the key 'about' occurs twice"),
    "a list": ("- x", "is ['x']: a file of choices has lines KEY: VALUE"),
    "a text": ('"text"', "is 'text': a file of choices has lines KEY: VALUE"),
    "nothing": ("", "is empty: a file of choices has lines KEY: VALUE"),
    "a number": ("5", "is 5: a file of choices has lines KEY: VALUE"),
    "a number as key": ("5: 6", "the key 5 is not a text"),
    "a value inside itself": ("about: &a [*a]", "is not YAML: line 1: a value that contains itself"),
    "a Python object": ("about: !!python/name:os.getcwd", "is not YAML: line 1: could not determine a constructor"),
    "no package": ("about: mine", "must begin with `# @package method.mine`"),
    "another one's package": ("# @package method.other\nabout: mine", "must begin with `# @package method.mine`"),
    "a package too late": ("# by me\n# @package method.mine\nabout: mine", "must begin with `# @package method.mine`"),
    "a second package": (
        "# @package method.mine\n# @package _global_\nabout: mine",  # the last one counts
        "must begin with `# @package method.mine`",
    ),
    "a byte order mark": (
        "\ufeff# @package method.mine\nabout: mine",
        "begins with a byte order mark: save it as UTF-8",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "D" / "method").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path / "D" / "method"


@pytest.mark.parametrize("command", [["method=mine"], ["--help", "method"]], ids=["run", "help"])
@pytest.mark.parametrize("text, message", FORMS.values(), ids=FORMS)
def test_a_file_that_cannot_be_read_is_one_line(text, message, command, folder, capsys):
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert command_line("--config-dir", "D", *command) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("kvbench: D/method/mine.yaml") and message in printed.err
    assert printed.err.count("\n") == 1 and not printed.out


def test_a_pipe_is_refused_at_once(folder, capsys):
    os.mkfifo(folder / "mine.yaml")
    assert command_line("--config-dir", "D", "--help", "method") == 2
    assert "D/method/mine.yaml cannot be read: not a regular file" in capsys.readouterr().err


def test_files_of_a_group_have_packages_as_kvbench_has_them_there(folder):
    """Without its package a file would be placed beside its own node, and overwrite what others have there."""
    for group, line, needed in (
        ("experiment", "", "_global_"),
        ("probe", "# @package method.mine\n", "probe.mine"),
        ("storage", "", None),
        ("method/parts", "", None),  # with which files of method may begin
    ):
        path = folder.parent / group / "mine.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{line}about: mine\n")
        if needed is None:
            check_folder(folder.parent, [group.partition("/")[0]], CONF)
            continue
        with pytest.raises(UserError, match=f"mine.yaml must begin with `# @package {needed}`"):
            check_folder(folder.parent, [group], CONF)
        path.write_text(f"# @package {needed}\nabout: mine\n")
        check_folder(folder.parent, [group], CONF)


@pytest.mark.parametrize("group", ["storage", "benchmark", "engine", "model"])
def test_a_package_is_refused_where_files_of_a_group_have_none(group, folder):
    """`engine=mine` of a file for `_global_` chose no engine: kvbench's methods ran, with the file's other keys."""
    path = folder.parent / group / "mine.yaml"
    path.parent.mkdir()
    path.write_text("# @package _global_\noutput_dir: elsewhere\n")
    with pytest.raises(UserError, match=f"has `# @package _global_`, and files of {group}/ have no package"):
        check_folder(folder.parent, [group], CONF)
    path.write_text(f"# @package {group}\nabout: mine\n")  # the same as none
    check_folder(folder.parent, [group], CONF)


def test_a_file_with_the_other_ending_of_yaml_is_no_silent_nothing(folder, capsys):
    (folder / "mine.yml").write_text("# @package method.mine\nabout: mine\n_target_: kvbench.methods.FullKV")
    assert command_line("--config-dir", "D", "method=mine") == 2
    expected = "kvbench: D/method/mine.yml would not be read: the name of a file of choices ends in .yaml\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("name", ["method/snapkv.yaml", "experiment/pyramidkv_table1.yaml", "config.yaml"])
def test_a_name_that_kvbench_has_is_refused_since_its_file_would_run(name, folder, capsys):
    """kvbench's SnapKV ran under the title of the folder's file, which the help described."""
    path = folder.parent / name
    path.parent.mkdir(exist_ok=True)
    package = {"method": "# @package method.snapkv", "experiment": "# @package _global_"}.get(path.parent.name, "#")
    path.write_text(f"{package}\nabout: mine\n")
    for command in (["method=snapkv"], ["--help", "method"]):
        assert command_line("--config-dir", "D", *command) == 2
        told = f"kvbench: D/{name} would not be read: kvbench has {name}: give the file a name of its own\n"
        assert capsys.readouterr().err == told


def test_kvbenchs_own_folder_is_no_collision():
    assert command_line("--config-dir", CONF, "--help", "method") == 0


def test_hidden_files_beside_the_choices_are_none(folder, capsys):
    """macOS writes ._mine.yaml beside mine.yaml: --config-dir was refused, as no YAML."""
    (folder / "mine.yaml").write_text("# @package method.mine\nabout: mine\n_target_: kvbench.methods.FullKV")
    (folder / "._mine.yaml").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
    assert command_line("--config-dir", "D", "--help", "method") == 0
    printed = capsys.readouterr()
    assert "mine" in printed.out and "._mine" not in printed.out and not printed.err
