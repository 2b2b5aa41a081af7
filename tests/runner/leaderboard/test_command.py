"""kvbench leaderboard: its files, links and mistakes; packs beside runs; a stranger's names."""

import re
import shutil
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd
import pytest

from kvbench.records.store import PACK, RECORDS
from kvbench.runner.leaderboard import submissions
from kvbench.runner.leaderboard.submissions import read_submissions
from kvbench.runner.leaderboard.tables import who_ran_what
from tests.runner.leaderboard.test_boards import hand_in, unchecked
from tests.support.command import kvbench


@pytest.fixture(autouse=True)
def made_up_records_pass(monkeypatch):
    monkeypatch.setattr(submissions, "verified_here", unchecked)


@pytest.fixture
def folders(tmp_path):
    """A run and the pack of another one, on one board."""
    hand_in(tmp_path / "in" / "run")
    other = hand_in(tmp_path / "other", manifest={"git": "1" * 16})
    assert kvbench("pack", str(other), "--out", str(tmp_path / "in" / "packed")) == 0
    shutil.rmtree(other)
    return tmp_path / "in"


def test_a_pack_and_a_run_are_on_one_board_and_each_score_leads_to_its_records(folders, tmp_path, capsys):
    assert kvbench("leaderboard", str(folders), "--out", str(tmp_path / "out"), "--targets", "0.5,0.25") == 0
    assert capsys.readouterr().out.count("written") == 3
    text = (tmp_path / "out" / "leaderboard.md").read_text()
    scores = re.findall(r"\[(0\.900 .*?)\]\(([^)]*)\)", text)
    assert len(scores) == 4  # two submissions, in two tables
    linked = {tmp_path / "out" / unquote(link) for _, link in scores}
    assert {path.resolve() for path in linked} == {folders / "run" / RECORDS, folders / "packed" / PACK}
    assert "at 0.500, #1" in text and "r_bytes_16 ≤ 0.25" in text
    table = pd.read_csv(tmp_path / "out" / "leaderboard.csv")
    assert table.groupby("submission").size().to_dict() == {"packed": 3, "run": 3}
    who = text.partition("## Who ran what")[2]
    assert "GPU of the tests" in who and "1111111111 " in who
    assert "plugins" not in who  # no submission has any


def test_bytes_in_16_bits_have_their_name_in_every_table_of_a_board(tmp_path):
    """The note below explained r_bytes_16, and the tables called it r_bytes."""
    hand_in(tmp_path / "in", fields={"r_bytes_16": 0.5})
    assert kvbench("leaderboard", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--targets", "0.5") == 0
    board = (tmp_path / "out" / "leaderboard.md").read_text()
    assert "at r_bytes_16, then the rank" in board and "| r_bytes_16 ≤ 0.5 |" in board
    assert "| setting | submission | r_bytes_16 |" in board and "r_bytes ≤" not in board


def test_plugins_that_made_a_submission_are_named_with_their_versions(tmp_path):
    hand_in(tmp_path / "in" / "one", manifest={"plugins": {"my-package": "1.0"}})
    hand_in(tmp_path / "in" / "two", manifest={"plugins": {"my-package": "2.0"}})
    table = who_ran_what(read_submissions([tmp_path / "in"], unchecked).ranked, ["", ""])
    assert [row[table.header.index("plugins")].text for row in table.rows] == ["my-package 1.0", "my-package 2.0"]


def test_a_folder_without_scores_is_named(folders, tmp_path, capsys):
    """A run of `benchmark=text`, or of prompts without answers, was on no page, without a word."""
    hand_in(folders / "unscored", fields={"scores": {}})
    assert kvbench("leaderboard", str(folders), "--out", str(tmp_path / "out")) == 0
    assert capsys.readouterr().err == f"{folders / 'unscored'} is left out: no records with scores\n"
    assert "unscored" not in (tmp_path / "out" / "leaderboard.md").read_text()


def test_links_of_the_overview_lead_to_headings(folders, tmp_path):
    kvbench("leaderboard", str(folders), "--out", str(tmp_path / "out"))
    page = (tmp_path / "out" / "leaderboard.html").read_text()
    found = re.findall(r'href="#([^"]*)"', page)
    assert "`" not in page.partition("<body>")[2] and "configuration." not in page
    assert found and set(found) <= set(re.findall(r'<h2 id="([^"]*)"', page))


def test_names_of_strangers_are_text(tmp_path):
    hand_in(tmp_path / "in" / "run")
    (tmp_path / "in" / "submission.yaml").write_text("by: '<script>alert(1)</script>[x](http://y)| _J_ ~~D~~ r_k'\n")
    kvbench("leaderboard", str(tmp_path / "in"), "--out", str(tmp_path))
    tags = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.add(tag)
    parser.feed((tmp_path / "leaderboard.html").read_text())
    assert "script" not in tags and "table" in tags
    text = (tmp_path / "leaderboard.md").read_text()
    assert "<script>" not in text and r"\[x\](http://y)\| \_J_ \~~D\~~ r_k" in text


@pytest.mark.parametrize(
    "more, message",
    [
        (["nowhere"], "there is no folder 'nowhere'"),
        (["FOLDER", "--targets", "0.1,all"], "--targets 0.1,all must be numbers above 0"),
        (["FOLDER", "--targets", "2"], "--targets 2 must be numbers above 0"),
        (["FOLDER", "--out", __file__], f"--out {__file__} is not a folder"),
        (["FOLDER"], "holds no records.jsonl"),
    ],
)
def test_mistakes_are_one_line(more, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert kvbench("leaderboard", *(str(tmp_path) if word == "FOLDER" else word for word in more)) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
