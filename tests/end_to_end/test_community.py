"""results/community: every submission is verified, and the leaderboard is made of them."""

import shutil

import pytest

from kvbench.records.load import files
from kvbench.runner.leaderboard.command import write
from kvbench.runner.leaderboard.submissions import FILE, read_note, read_submissions
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support.paths import ROOT

COMMUNITY = ROOT / "results" / "community"
PACKS = sorted({path.parent for path in files([COMMUNITY])})


@pytest.mark.parametrize("pack", PACKS, ids=lambda path: str(path.relative_to(COMMUNITY)))
def test_nothing_of_a_submission_is_wrong(pack):
    wrong = [check for check in verify(pack) if check.verdict is Verdict.WRONG]
    assert not wrong


def test_every_submission_says_who_made_it():
    assert all(submission.note.by for submission in read_submissions([COMMUNITY]).ranked)
    assert read_note(COMMUNITY / "template" / FILE).by


def test_the_leaderboard_is_that_of_the_folders(tmp_path):
    """In a folder of the same depth, for its links."""
    copy = shutil.copytree(COMMUNITY, tmp_path / "community")
    write([copy], copy)
    for name in ("leaderboard.md", "leaderboard.csv"):
        assert (copy / name).read_text() == (COMMUNITY / name).read_text(), "make community"
