"""results/community: every submission is verified, and the leaderboard is made of them."""

import re
import shutil

import pytest
import transformers

from kvbench.records.load import files
from kvbench.runner.leaderboard import submissions
from kvbench.runner.leaderboard.command import write
from kvbench.runner.leaderboard.submissions import FILE, read_note
from kvbench.runner.verify.verdict import Check, Verdict
from tests.support.paths import ROOT

COMMUNITY = ROOT / "results" / "community"
PACKS = sorted({path.parent for path in files([COMMUNITY])})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A copy with the leaderboard made anew, in a folder of the same depth for its links; all checks by folder."""
    copy = shutil.copytree(COMMUNITY, tmp_path_factory.mktemp("results") / "community")
    checks: dict[str, list[Check]] = {}
    judge = submissions.verified_here
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            submissions,
            "verified_here",
            lambda folder: checks.setdefault(str(folder.path.relative_to(copy)), judge(folder)),
        )
        write([copy], copy)
    return copy, checks


@pytest.mark.parametrize("pack", [str(path.relative_to(COMMUNITY)) for path in PACKS])
def test_nothing_of_a_submission_is_wrong(pack, made):
    checks = made[1][pack]
    assert checks and not [check for check in checks if check.verdict is Verdict.WRONG]


def test_every_submission_says_who_made_it():
    assert all(submissions.note_of(pack, [COMMUNITY]).by for pack in PACKS)
    assert read_note(COMMUNITY / "template" / FILE).by


def test_the_leaderboard_is_that_of_the_folders(made):
    for name in ("leaderboard.md", "leaderboard.csv"):
        assert comparable((made[0] / name).read_text()) == comparable((COMMUNITY / name).read_text()), "make community"


def comparable(text: str) -> str:
    """Without the counts of verdicts under another transformers, whose files of a GGUF model have other hashes."""
    pinned = f"transformers=={transformers.__version__}\n" in (ROOT / "constraints.txt").read_text()
    return text if pinned else re.sub(r"\d+ proven(, \d+ (plausible|unproven))*", "", text)
