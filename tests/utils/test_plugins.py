"""Plug-ins: what one brings is known without being imported, and whatever is wrong with one is a line that names it."""

import importlib
import re
import sys
import traceback

import pytest

from kvbench.configuration import conf
from kvbench.configuration.conf import CONF, brought_by, choices, installed_file
from kvbench.errors import UserError
from kvbench.metrics.answers import METRICS
from kvbench.runner.commands import COMMANDS
from kvbench.runner.help import help_text
from kvbench.runner.verify import known_classes
from kvbench.utils.own_code import described, own_line
from kvbench.utils.plugins import check_files, declared, plugin_of, plugins, versions_of
from kvbench.utils.targets import class_of
from tests.support.command import kvbench

CACHED = (plugins, conf.folders, conf._installed, known_classes.targets)
METHOD = "# @package method.mine\nabout: 'A method'\n_target_: one_plugin.methods.Mine\n"
CODE = "class Mine:\n    def __init__(self):\n        raise KeyError('x')\n\n\nclass Other:\n    pass\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a plug-in into a folder of sys.path, with the files that pip leaves of a distribution."""
    monkeypatch.syspath_prepend(tmp_path)
    names = set()

    def put(package, files, *, name=None, version="1.0", made=True):
        name = name or package.replace("_", "-")
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[kvbench.plugins]\nmine = {package}\n")
        for path, text in {**({"__init__.py": ""} if made else {}), **files}.items():
            file = tmp_path / package / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        names.add(package)
        importlib.invalidate_caches()
        forget()

    def forget():
        for cached in CACHED:
            cached.cache_clear()

    yield put
    monkeypatch.undo()
    for module in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[module]
    importlib.invalidate_caches()
    forget()


def test_what_a_plug_in_brings_is_known_and_nothing_of_it_is_imported(install):
    install("one_plugin", {"conf/method/mine.yaml": METHOD, "__init__.py": "raise ImportError('too early')"})
    assert "mine" in choices("method") and installed_file("method", "mine").name == "mine.yaml"
    assert brought_by("method", "mine") == "one-plugin" and not brought_by("method", "snapkv")
    assert installed_file("method", "../method/mine") is None
    assert plugin_of("one_plugin.methods.Mine").version == "1.0" and plugin_of("one_pluginx.Mine") is None
    assert versions_of(["one_plugin.Mine", "kvbench.methods.Eviction", "torch.nn.Linear"]) == {"one-plugin": "1.0"}
    assert "one_plugin" not in sys.modules


def test_the_help_lists_the_parts_and_metrics_of_plug_ins_with_their_package(install):
    files = {
        "conf/storage/mine.yaml": "_target_: one_plugin.Mine",
        "conf/scoring/mine.yaml": "about: 'By size'\n_target_: one_plugin.Mine",
        "conf/metric/first.yaml": "about: 'The first word'\nfunction: one_plugin.first",
    }
    install("one_plugin", {**files, "__init__.py": "raise ImportError('too early')"})
    assert re.search(r"\[cyan\]mine +\[/\]  \(one-plugin\)\n", help_text("storage"))
    assert re.search(r"\[cyan\]mine +\[/\]  By size \(one-plugin\)\n", help_text("scoring"))
    assert re.search(r"\[cyan\]first +\[/\]  The first word \(one-plugin\)$", help_text("metric"))


def message(call, *arguments) -> str:
    with pytest.raises(UserError) as error:
        call(*arguments)
    return str(error.value)


@pytest.mark.parametrize(
    "files, made, expected",
    [
        ({}, False, "the plug-in one-plugin 1.0 is not installed completely: there is no package 'one_plugin'"),
        ({}, True, "the plug-in one-plugin 1.0 is not installed completely: one_plugin has no folder conf/"),
        (
            {"conf/methods/mine.yaml": METHOD},
            True,
            "the plug-in one-plugin 1.0: unknown folder of conf/ 'methods'. Did you mean 'method'? Allowed: ",
        ),
        (
            {"conf/hydra/launcher/mine.yaml": "a: 1"},
            True,
            "the plug-in one-plugin 1.0: unknown folder of conf/ 'hydra'",
        ),
        ({"conf/config.yaml": "a: 1"}, True, "the plug-in one-plugin 1.0: "),
        ({"conf/method/mine.yml": METHOD}, True, "the plug-in one-plugin 1.0: "),
        ({"conf/engine/mine.yaml": "# @package _global_\na: 1"}, True, "the plug-in one-plugin 1.0: "),
        ({"conf/method/mine.yaml": "- a"}, True, "the plug-in one-plugin 1.0: "),
        ({"conf/method/mine.yaml": "about: ${oc.env:HOME}"}, True, "the plug-in one-plugin 1.0: "),
        (
            {"conf/method/mine.yaml": METHOD.partition("\n")[2]},
            True,
            "the plug-in one-plugin 1.0: ",
        ),
        (
            {"conf/method/snapkv.yaml": METHOD.replace("mine", "snapkv")},
            True,
            "kvbench and the plug-in one-plugin 1.0 both have a method of the name 'snapkv'",
        ),
    ],
    ids=[
        "no package",
        "no conf",
        "a misspelt folder",
        "Hydra's",
        "no folder",
        "another ending",
        "another package",
        "no mapping",
        "the environment",
        "no package line",
        "a name of kvbench",
    ],
)
def test_what_is_wrong_with_a_plug_in_is_one_line_that_names_it(files, made, expected, install):
    install("one_plugin", files, made=made)
    assert message(choices, "method").startswith(expected)


def test_a_package_inside_another_is_refused_for_that_and_not_as_missing(install):
    install("one_plugin.inner", {"conf/method/mine.yaml": METHOD}, name="one-plugin")
    assert message(plugins) == (
        "the plug-in one-plugin 1.0: its entry point names 'one_plugin.inner': a top-level package is needed"
    )


def test_two_plug_ins_with_one_name_are_both_named(install):
    install("one_plugin", {"conf/storage/mine.yaml": "_target_: one_plugin.Mine"})
    install("two_plugin", {"conf/storage/mine.yaml": "_target_: two_plugin.Mine"}, version="0.3")
    expected = "one-plugin 1.0 and the plug-in two-plugin 0.3 both have a storage of the name 'mine'"
    assert message(check_files, CONF) == expected


@pytest.mark.parametrize(
    "group, taken, name, key", [("command", COMMANDS, "table", "module"), ("metric", METRICS, "exact", "function")]
)
def test_commands_and_metrics_are_declared(group, taken, name, key, install):
    """A name of kvbench's, or code of somebody else's, is refused."""
    file = f"conf/{group}/{name}.yaml"
    install("one_plugin", {file: f"about: 'It counts'\n{key}: one_plugin.counts"})
    assert (
        message(declared, group, taken)
        == f"kvbench and the plug-in one-plugin 1.0 both have a {group} of the name {name!r}"
    )
    assert declared(group, [])[name] == {"about": "It counts (one-plugin)", key: "one_plugin.counts"}
    install("two_plugin", {f"conf/{group}/other.yaml": f"{key}: os.system"})
    assert f"other.yaml needs {key}: a {key} of two_plugin" in message(declared, group, [])


@pytest.mark.parametrize("group, key", [("command", "module"), ("metric", "function")])
def test_a_command_or_metric_of_two_plug_ins_is_neithers(group, key, install):
    """The last plug-in's ran: `kvbench NAME` asks for these names where no run is composed."""
    for package in ("one_plugin", "two_plugin"):
        install(package, {f"conf/{group}/mine.yaml": f"{key}: {package}.mine"})
    expected = f"one-plugin 1.0 and the plug-in two-plugin 1.0 both have a {group} of the name 'mine'"
    assert message(declared, group, []) == expected


@pytest.mark.parametrize(
    "code, told",
    [
        ("", "one_plugin.mine needs a function main(arguments): module 'one_plugin.mine' has no attribute 'main'"),
        (None, "one_plugin.mine needs a function main(arguments): No module named 'one_plugin.mine'"),
        ("def main(arguments):\n    return 'done'", "main of one_plugin.mine returned 'done': an exit code, or None"),
    ],
    ids=["no main", "no module", "no exit code"],
)
def test_a_command_that_cannot_run_is_one_line_that_names_its_plug_in(code, told, install, capsys):
    files = {"conf/command/mine.yaml": "module: one_plugin.mine"}
    install("one_plugin", files if code is None else {**files, "mine.py": code})
    assert kvbench("mine") == 2
    assert capsys.readouterr().err.startswith(f"kvbench: the plug-in one-plugin 1.0: {told}")


def test_a_command_returns_its_exit_code_and_none_is_0(install):
    files = {"conf/command/mine.yaml": "module: one_plugin.mine"}
    install(
        "one_plugin", {**files, "mine.py": "def main(arguments):\n    return int(*arguments) if arguments else None"}
    )
    assert (kvbench("mine"), kvbench("mine", 3)) == (0, 3)


@pytest.mark.parametrize(
    "target, expected",
    [
        ("one_plugin.broken.Mine", "ImportError in broken.py of one-plugin 1.0, line 2: no such thing"),
        ("one_plugin.nothing.Mine", "the plug-in one-plugin 1.0: one_plugin.nothing.Mine: there is no module"),
        ("one_plugin.methods.Mime", "the plug-in one-plugin 1.0: one_plugin.methods has no class 'Mime'. Did you mean"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_is_named(target, expected, install):
    broken = "import json\nraise ImportError('no such thing')"
    install("one_plugin", {"conf/method/mine.yaml": METHOD, "methods.py": CODE, "broken.py": broken})
    assert expected in message(class_of, {"_target_": target}, "method")


def test_an_error_in_a_plug_ins_code_names_it_wherever_it_is_installed(install, monkeypatch):
    install("one_plugin", {"conf/method/mine.yaml": METHOD, "methods.py": CODE})
    (plugin,) = (one for one in plugins() if one.package == "one_plugin")
    monkeypatch.setattr("kvbench.utils.own_code._FOLDERS", [plugin.folder.parent])  # as if it were site-packages
    with pytest.raises(KeyError) as raised:
        importlib.import_module("one_plugin.methods").Mine()
    expected = "KeyError in methods.py of one-plugin 1.0, line 3: 'x'"
    assert own_line(raised.value) == expected
    assert described(raised.value, traceback.extract_tb(raised.value.__traceback__)[-1]) == expected


def test_a_manifest_may_name_a_plug_ins_classes_that_its_conf_names_and_no_others(install):
    others = {"conf/storage/foreign.yaml": "_target_: os.mkdir", "methods.py": CODE}
    install("one_plugin", {"conf/method/mine.yaml": METHOD, **others})
    assert known_classes.known("one_plugin.methods.Mine").__name__ == "Mine"
    for name in ("one_plugin.methods.Other", "two_plugin.methods.Mine", "os.mkdir"):
        refused = message(known_classes.known, name)
        assert "is not a class of the configuration of kvbench or an installed plug-in" in refused
