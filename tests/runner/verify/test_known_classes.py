"""What a stranger's manifest says is never resolved and never called, whichever command reads it."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support.command import kvbench

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:.*is damaged")]

SECRET = "hf_a-secret-of-this-machine"
CREATES = '${oc.create:"{_target_: pandas.read_pickle, filepath_or_buffer: %s}"}'
TEXTS = {"created": CREATES, "escaped": f"\\{CREATES}", "environment": "${oc.env:HF_TOKEN}", "key": "${model.name}"}
PLACES = {
    "a method's storage": lambda config, text: config["method"]["snapkv"].update(storage=text),
    "a method's part": lambda config, text: config["method"]["snapkv"]["scoring"].update(window=text),
    "a benchmark's text": lambda config, text: config["benchmark"].update(sentence=text),
    "a key": lambda config, text: config["benchmark"].update({text: 1}),
    "a node of no class": lambda config, text: config.update(more={"deep": [text]}),
}
COMMANDS = {
    "verify": ["--out", "page.md"],
    "leaderboard": ["--out", "."],
    "report": ["--out", "page.html"],
    "records": [],
    "status": [],
    "pack": ["--out", "run.pack"],
}


class Writes:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def forged(undisturbed, tmp_path, monkeypatch):
    """Changes the configuration and the benchmark of a run's manifest; the run's folder."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Writes(tmp_path / "called")))

    def forge(change) -> Path:
        folder = shutil.copytree(undisturbed, tmp_path / "run")
        (path,) = (folder / "manifests").iterdir()
        manifest = json.loads(path.read_text(encoding="utf-8"))
        change(manifest["config"])
        manifest["benchmark"] |= {k: v for k, v in manifest["config"]["benchmark"].items() if k != "about"}
        path.write_text(json.dumps(manifest), encoding="utf-8")
        return folder

    return forge


CASES = [*((text, next(iter(PLACES))) for text in TEXTS), *(("created", place) for place in [*PLACES][1:])]


@pytest.mark.parametrize("text, place", CASES)
def test_what_could_be_resolved_is_wrong_and_nothing_comes_of_it(text, place, forged, tmp_path, tiny_folder, capsys):
    written = TEXTS[text].replace("%s", str(tmp_path / "x.pkl"))
    folder = forged(lambda config: PLACES[place](config, written))
    verdicts = {check.name: check for check in verify(folder, {"model.path": str(tiny_folder)})}
    assert not (tmp_path / "called").exists()
    assert verdicts["files"].verdict is Verdict.WRONG
    assert any("has '${', which no value of a configuration may have" in line for line in verdicts["files"].notes)
    for command, options in COMMANDS.items():
        kvbench(command, folder, *options)
    assert not (tmp_path / "called").exists()
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "page.md" for path in made)
    assert not any(SECRET.encode() in path.read_bytes() for path in made)


@pytest.mark.parametrize("name", ["os.mkdir", "pandas.read_pickle", "tests.runner.verify.test_known_classes.Writes"])
def test_a_class_that_conf_does_not_name_is_not_imported(name, forged, tmp_path, tiny_folder):
    node = {"_target_": name, "path": "called"}
    folder = forged(lambda config: config["method"]["snapkv"].update(storage=node))
    verdicts = {check.name: check for check in verify(folder, {"model.path": str(tiny_folder)})}
    assert any(f"{name} is not a class of the configuration of kvbench" in line for line in verdicts["manifests"].notes)
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("node", ["haystack_dir", "model", "method"])
def test_no_file_of_this_machine_is_read_because_a_manifest_names_it(node, forged, tmp_path, tiny_folder, monkeypatch):
    """Its text could stand in an error, and its hash on the page."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text(SECRET)
    place = str(tmp_path / "here")
    changes = {
        "haystack_dir": lambda config: config["benchmark"].update(haystack_dir=place),
        "model": lambda config: config["model"].update(path=place),
        "method": lambda config: config["method"]["snapkv"].update(scores_file=f"{place}/a.txt"),
    }
    folder = forged(changes[node])
    opened = []
    reads = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: opened.append(str(path)) or reads(path, *more, **named)
    )
    checks = verify(folder, {} if node == "model" else {"model.path": str(tiny_folder)})
    assert not any(path.startswith(place) for path in opened)
    lines = [line for check in checks for line in check.notes]
    assert any("gives its path here" in line or "of the machine that ran them" in line for line in lines)
    assert not any(SECRET in line for line in lines)


def test_a_record_whose_parameters_could_be_resolved_is_none(undisturbed, tmp_path):
    """Its JSON may spell the characters otherwise."""
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    path = folder / "records.jsonl"
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    record = json.loads(first)
    record["parameters"] = json.dumps(json.loads(record["parameters"]) | {"x": "?"}).replace(
        "?", "\\u0024\\u007bmodel}"
    )
    record.pop("checksum", None)
    path.write_text(json.dumps(record) + "\n" + rest, encoding="utf-8")
    assert {check.name: check.verdict for check in verify(folder)}["files"] is Verdict.WRONG


def test_a_link_out_of_a_folder_is_refused(undisturbed, tmp_path, capsys):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "secret.yaml").write_text(f"by: {SECRET}\n")
    (folder / "submission.yaml").symlink_to(tmp_path / "secret.yaml")
    for command, code in {"verify": 1, "leaderboard": 0, "pack": 2}.items():  # a leaderboard lists the folder apart
        out = ["--out", tmp_path] if command == "leaderboard" else []
        assert kvbench(command, folder, *out) == code
        printed = capsys.readouterr()
        page = (tmp_path / "leaderboard.md").read_text() if command == "leaderboard" else ""
        told = f"{printed.out}{printed.err}{page}".replace("\n", "")
        assert "submission.yaml is a link to a file outside of" in told
        assert SECRET not in told
