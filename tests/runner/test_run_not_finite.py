"""NaN and infinite values: the record they would make is left out, the others are made, the run exits with code 1."""

import math

import pytest
import torch

from kvbench.errors import Incomplete, UserError
from kvbench.evaluation.decode import choose
from kvbench.records import load
from tests.support.runs import arguments, reported, run

pytestmark = pytest.mark.heavy

POISONED = "method._target_=tests.support.slow_method.Poisoned"


def only(folder, *more: str) -> list[str]:
    return arguments(*folder, "method=[full,snapkv]", "ratio=0.5", *more)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_that_are_not_finite_are_noticed(value, dtype):
    logits = torch.randn(3, 50).to(dtype)
    logits[1, 7] = value
    assert choose(logits).finite.tolist() == [True, False, True]


def test_records_of_nan_logits_are_left_out_and_the_others_are_made(tiny_folder, tmp_path, capsys):
    whole = load(reported(*only((tiny_folder, tmp_path / "whole"))))
    with pytest.raises(Incomplete, match=r"could not be made; the first: no record of sample .* are NaN") as error:
        reported(*only((tiny_folder, tmp_path / "nan"), POISONED))
    (folder,) = (tmp_path / "nan").iterdir()
    records = load(folder)
    missing = set(whole["sample"]) - set(records[records["method"] == "Poisoned"]["sample"])
    assert 0 < len(missing) <= len(set(whole["sample"]))
    others = records[records["method"] != "Poisoned"]
    assert sorted(map(tuple, others["tokens"])) == sorted(map(tuple, whole["tokens"]))
    assert (folder / "table.md").is_file()
    shown = capsys.readouterr().err
    assert all(f"no record of sample {sample!r} under 'Poisoned 0.5'" in shown for sample in missing)
    assert "\n" not in str(error.value)


def test_an_infinite_score_makes_no_record(tiny_folder, tmp_path, monkeypatch):
    from kvbench.benchmarks import NeedleInAHaystack

    scored = NeedleInAHaystack.score
    monkeypatch.setattr(NeedleInAHaystack, "score", lambda self, *a: dict.fromkeys(scored(self, *a), math.inf))
    with pytest.raises(Incomplete, match="6 records could not be made"):
        run(*only((tiny_folder, tmp_path)))


def test_a_score_in_per_cent_makes_no_record(tiny_folder, tmp_path, monkeypatch):
    """Its interval would end at 1."""
    from kvbench.benchmarks import NeedleInAHaystack

    scored = NeedleInAHaystack.score
    monkeypatch.setattr(NeedleInAHaystack, "score", lambda self, *a: dict.fromkeys(scored(self, *a), 57.0))
    with pytest.raises(UserError, match=r"score returned digits=57: a number from 0 to 1 is needed"):
        run(*only((tiny_folder, tmp_path)))
