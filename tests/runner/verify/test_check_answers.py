"""Answers of settings that keep every token, beside FullKV's."""

import json

import pytest

from kvbench.runner.verify.check_answers import answers_fit
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.verdict import Verdict
from tests.support.forged import Forged
from tests.support.runs import run

LATER = "were chosen with FullKV's cache, but differ from FullKV's"


@pytest.fixture(scope="module")
def honest(tiny_folder, tmp_path_factory):
    given = (f"model.path={tiny_folder}", f"output_dir={tmp_path_factory.mktemp('whole')}", "ratio=1.0")
    sample = ("benchmark=niah", "benchmark.lengths=[320]", "benchmark.depths=[50]", "benchmark.max_new_tokens=8")
    return run(*given, "model.shape=null", "model.max_length=4096", *sample, "method=[full,snapkv,fp8_head]")


def checked(honest, tmp_path, setting: str, **changes):
    """The check of the folder whose record of a setting has another last token, and these `changes`."""
    forged = Forged(honest, tmp_path / "run", None)
    for record in forged.records:
        record["close_call"] = None
        if record["method"] == setting:
            record |= changes
            record["tokens"][-1] += 1
    return answers_fit(read(forged.seal()), Materials(None, None, ()))


def test_a_method_that_keeps_every_token_has_fullkvs_answer(honest, tmp_path):
    check = checked(honest, tmp_path, "snapkv")
    assert check.verdict is Verdict.WRONG and any(LATER in note for note in check.notes)


def test_a_storage_that_changes_numbers_may_have_another_answer(honest, tmp_path):
    """Its class says so, whatever bytes the record claims."""
    claimed = {"r1": 1, "r_mean": 1, "r_read": 1}
    assert not any(LATER in note for note in checked(honest, tmp_path, "fp8_head", **claimed).notes)


def test_a_setting_that_cannot_be_built_here_is_unproven(honest, tmp_path):
    forged = Forged(honest, tmp_path / "other", None)
    parameters = json.dumps({"_target_": "another_package.Method"})
    for record in forged.records:
        if record["method"] == "snapkv":
            record["parameters"] = parameters
    assert any(
        "its setting is not built here" in note
        for note in answers_fit(read(forged.seal()), Materials(None, None, ())).notes
    )
