"""Distances in `kvbench compare`: from the baseline, and in several runs from each run's own FullKV."""

import pytest

from kvbench.records.same_answer import answer_hash
from tests.runner.test_compare import engine, line, mistake, run
from tests.support import records
from tests.support.command import kvbench
from tests.support.report_run import manifest, record, write_run

pytestmark = pytest.mark.usefixtures("wide")


def test_distances_are_limited_where_they_are_from_the_baseline(capsys, tmp_path):
    first = engine("f16")
    near, far = (
        [one | {"baseline": f"f16 {answer_hash(of)}"} for one, of in zip(made, first, strict=True)]
        for made in (engine("q8_0", kl=0.01, top1=1.0), engine("q4_0", kl=0.5, top1=0.5))
    )
    folder = write_run(tmp_path / "run", [*first, *near, *far], manifests=[records.manifest()])
    assert kvbench("compare", folder, "--baseline", "f16", "--min-top1", 0.9) == 1
    assert "the share of top1 of 0.9 is not kept by q4_0\n" in capsys.readouterr().out
    assert kvbench("compare", folder, "--baseline", "f16", "--max-kl", 0.1) == 1
    printed = capsys.readouterr().out
    assert "the limit of kl_at_least of 0.1 is not kept by q4_0\n" in printed
    assert line(printed, "q8_0").split()[-4:] == ["1.000", "0.01", "–", "within"]
    other = mistake(capsys, folder, "--baseline", "q8_0", "--max-kl", "0.1")
    assert "--max-kl: no record has kl from the baseline" in other


def test_distances_of_methods_are_from_fullkv(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: 1.0, distance={"top1": 1.0, "kl": 0.0})
    assert kvbench("compare", folder, "--max-kl", 0.1, "--min-top1", 0.9) == 0  # 0 throughout is the same computation
    assert "--max-kl: no record has kl" in mistake(capsys, folder, "--baseline", "h2o 0.2", "--max-kl", "0.1")


@pytest.mark.parametrize(
    "other, told",
    [({"manifest": {"dtype": "torch.bfloat16"}}, "–"), ({"tokens": [2]}, "–"), ({}, "0.5")],
    ids=["another dtype", "another answer of FullKV", "the same answer of the same model"],
)
def test_distances_of_another_run_are_from_its_own_fullkv(other, told, capsys, tmp_path):
    for name, change in {"before": {}, "after": other}.items():
        made = [
            record(f"s{i}", setting, 1.0, tokens=change.get("tokens", [1]), distance={"top1": top1, "kl": kl})
            for i in range(40)
            for setting, top1, kl in (("full", 1.0, 0.0), ("snapkv 0.2", 0.5, 0.5))
        ]
        write_run(tmp_path / name, made, manifests=[manifest() | change.get("manifest", {})])
    kvbench("compare", tmp_path / "before", tmp_path / "after", "--baseline", "before: full", "--max-kl", 0.1)
    printed = capsys.readouterr().out
    assert line(printed, "before: snapkv 0.2").split()[-3] == "0.5"
    assert line(printed, "after: snapkv 0.2").split()[-3] == told
    assert line(printed, "after: full").endswith("within" if told == "0.5" else "undecided")


def test_two_runs_without_scores_are_compared_by_their_answers_and_not_by_distances(capsys, tmp_path):
    for name, tokens in {"before": [1], "after": [2]}.items():
        made = [
            record(f"s{i}", "full", 1.0, scores={}, tokens=tokens, distance={"top1": 1.0, "kl": 0.0}) for i in range(40)
        ]
        write_run(tmp_path / name, made, manifests=[manifest()])
    both = (tmp_path / "before", tmp_path / "after", "--baseline", "before: full")
    assert kvbench("compare", *both, "--min-equal", 0.9) == 1
    assert line(capsys.readouterr().out, "after: full").split()[2:] == "0 of 40 broken".split()
    assert "--margin is about a score" in mistake(capsys, *both, "--margin", "0.05")
    assert kvbench("compare", *both, "--metric", "top1") == 0
