"""kvbench verify: the page, the exit code, mistakes."""

import shutil

import pytest

from kvbench.records.store import RECORDS
from tests.support.command import kvbench


@pytest.mark.heavy
def test_an_honest_folder_gives_a_page_and_exit_code_0(undisturbed, tiny_folder, tmp_path, capsys):
    for name in ("page.md", "page.html"):
        out = tmp_path / name
        assert kvbench("verify", str(undisturbed), f"model.path={tiny_folder}", "--out", str(out)) == 0
        assert "proven" in out.read_text() and undisturbed.name in out.read_text()
    told = capsys.readouterr().out
    assert "scores" in told and " wrong " not in told


@pytest.mark.heavy
def test_an_edited_folder_gives_exit_code_1(undisturbed, tmp_path, capsys):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    text = (folder / RECORDS).read_text()
    (folder / RECORDS).write_text(text.replace('"floored": false', '"floored": true', 1))
    assert kvbench("verify", str(folder)) == 1
    assert "1 record" in capsys.readouterr().out


@pytest.mark.heavy
def test_the_page_says_whether_answers_were_made_again_and_which(undisturbed, tiny_folder, tmp_path, capsys):
    def told(*words):
        texts = []
        for name in ("page.md", "page.html"):
            out = ["--out", str(tmp_path / name)]
            assert kvbench("verify", str(undisturbed), f"model.path={tiny_folder}", *out, *words) == 0
            texts += [capsys.readouterr().out, (tmp_path / name).read_text(encoding="utf-8")]
        return texts

    assert all("no answer was made again" in text for text in told())
    for text in told("--rerun", "1", "--nonce", "abc"):
        assert "9 answers of the folder made again here" in text and "drawn with --nonce abc" in text


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere"],
        ["FOLDER", "benchmark.lengths=[1]"],
        ["FOLDER", "--out", "page.pdf"],
        ["FOLDER", "--rerun", "0"],
        ["FOLDER", "--rerun", "some"],
        ["FOLDER", "--nonce", "abc"],
        ["FOLDER", "--rerun", "1", "--nonce", ""],
    ],
)
def test_mistakes_are_one_line(words, tmp_path, capsys):
    assert kvbench("verify", *(str(tmp_path) if word == "FOLDER" else word for word in words)) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["verify", "pack"])
def test_a_folder_that_does_not_exist_is_named(command, capsys):
    assert kvbench(command, "no/where") == 2
    assert capsys.readouterr().err == "kvbench: there is no folder 'no/where'\n"


def test_the_help_of_a_pack_says_what_is_left_out(capsys):
    assert kvbench("pack", "--help") == 0
    assert "Left out" in capsys.readouterr().out
