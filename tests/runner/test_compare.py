"""`kvbench compare`: settings of one or several runs beside a baseline, verdicts and exit codes."""

import json

import pytest

from tests.support import records
from tests.support.command import kvbench
from tests.support.report_run import manifest, record, sample_row, write_run

pytestmark = pytest.mark.usefixtures("wide")


def run(folder, snapkv, n=40, **more):
    """FullKV finds all of n needles; SnapKV finds `snapkv(i)` of needle i."""
    rows = []
    for i in range(n):
        rows += [
            record(f"s{i}", setting, found, **more)
            for setting, found in (("full", 1.0), ("snapkv 0.2", snapkv(i)), ("h2o 0.2", 1.0 - 0.001 * (i % 2)))
        ]
    return write_run(folder, rows, manifests=[manifest()])


def mistake(capsys, *arguments) -> str:
    assert kvbench("compare", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("kvbench: ") and printed.err.count("\n") == 1
    return printed.err


def rows(printed: str) -> dict[str, list[str]]:
    return {" ".join(words[:2]): words[2:] for line in printed.splitlines() if len(words := line.split()) > 6}


def engine(setting, tokens=lambda i: [i], n=150, kl=0.0, top1=1.0):
    """Records of an engine's setting that scores 1 everywhere and answers with `tokens`."""
    return [
        records.record(
            "engine",
            sample=f"s{i}",
            setting=setting,
            method=setting,
            unit=f"u{i}",
            tokens=tokens(i),
            distance={"top1": top1, "agreed": top1, "kl_at_least": kl * (1 + i % 2 / 50)},
        )
        for i in range(n)
    ]


def line(printed: str, setting: str) -> str:
    return next(one.rstrip() for one in printed.splitlines() if one.startswith(setting))


def test_a_broken_margin_is_exit_code_1_and_named(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: float(i % 2), n=200)
    assert kvbench("compare", folder, "--margin", 0.02) == 1
    printed = capsys.readouterr().out
    found = rows(printed)
    assert found["SnapKV 0.2"][0] == "-0.500" and found["SnapKV 0.2"][-1] == "broken"
    assert found["SnapKV 0.2"][4:6] == ["<0.001", "0/100/100"]
    assert found["H2O 0.2"][-1] == "within"
    assert "the margin of 0.02 is not kept by snapkv 0.2" in printed


def test_types_of_an_engines_cache_are_judged_by_its_plain_type_without_fullkv(capsys, tmp_path):
    types = {
        "llama_cpp f16/f16": lambda i: 1.0,
        "llama_cpp q8_0/q8_0": lambda i: 1.0,
        "llama_cpp q4_0/q4_0": lambda i: i % 2,
    }
    rows = [
        records.record(
            "engine", sample=f"s{i}", setting=name, method=name, scores={"exact": float(found(i))}, unit=f"u{i}"
        )
        for i in range(200)
        for name, found in types.items()
    ]
    folder = write_run(tmp_path / "run", rows, manifests=[manifest()])
    assert kvbench("compare", folder, "--baseline", "llama_cpp f16/f16", "--margin", 0.02) == 1
    printed = capsys.readouterr().out
    assert "the margin of 0.02 is not kept by llama_cpp q4_0/q4_0" in printed and "200 texts" in printed
    kept = [row for row in rows if "q4_0" not in row["setting"]]
    folder = write_run(tmp_path / "kept", kept, manifests=[manifest()])
    assert kvbench("compare", folder, "--baseline", "llama_cpp f16/f16", "--margin", 0.05) == 0


def test_without_a_margin_there_is_no_verdict(capsys, tmp_path):
    assert kvbench("compare", run(tmp_path / "run", lambda i: float(i % 2))) == 0
    printed = capsys.readouterr().out
    assert "units needed" in printed and "verdict" not in printed


def test_too_few_samples_are_undecided_which_is_no_pass_unless_asked(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: float(i != 0), n=8)
    assert kvbench("compare", folder, "--margin", 0.02) == 3
    printed = capsys.readouterr().out
    assert rows(printed)["SnapKV 0.2"][-1] == "undecided"
    assert "undecided, which is not passed: h2o 0.2, over 8 units: a margin of 0.02 takes about 149" in printed
    assert kvbench("compare", folder, "--margin", 0.02, "--allow-undecided") == 0
    broken = run(tmp_path / "broken", lambda i: float(i % 2), n=60)  # and h2o is undecided
    assert kvbench("compare", broken, "--margin", 0.02) == 1
    assert kvbench("compare", broken, "--margin", 0.02, "--allow-undecided") == 1


def test_what_is_undecided_for_another_reason_than_few_units_is_told(capsys, tmp_path):
    near = run(tmp_path / "near", lambda i: float(i % 50 > 0), n=800)
    assert kvbench("compare", near, "--margin", 0.02) == 3
    assert "snapkv 0.2, whose difference of -0.020 cannot be distinguished from -0.02" in capsys.readouterr().out
    one = run(tmp_path / "one", lambda i: 1.0, n=8, unit="a")
    assert kvbench("compare", one, "--margin", 0.02) == 3
    assert "snapkv 0.2, whose difference over 1 unit has no interval" in capsys.readouterr().out
    assert kvbench("compare", run(tmp_path / "equal", lambda i: 1.0), "--margin", 0) == 3
    assert "snapkv 0.2, whose difference of +0.000 cannot be distinguished from -0" in capsys.readouterr().out


def test_a_baseline_that_finds_nothing_is_a_warning(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: 0.0, n=8)
    assert kvbench("compare", folder, "--baseline", "snapkv 0.2") == 0
    printed = capsys.readouterr()
    assert "SnapKV 0.2's own score is 0.000: no setting can be worse" in printed.err
    assert "no setting can be worse" in " ".join(printed.out.split())


def test_a_baseline_at_the_floor_is_no_pass(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: float(i % 50 == 0), n=400)  # the baseline's mean is the margin
    assert kvbench("compare", folder, "--baseline", "snapkv 0.2", "--margin", 0.02) == 3
    printed = capsys.readouterr()
    assert "full, whose baseline has a score of 0.020: nothing can lose more than 0.02" in printed.out
    assert rows(printed.out)["H2O 0.2"][-1] == "undecided" and not printed.err
    better = run(tmp_path / "better", lambda i: float(i % 10 == 0), n=400)
    assert kvbench("compare", better, "--baseline", "snapkv 0.2", "--margin", 0.02) == 0


def test_a_score_that_holds_while_answers_differ_is_not_called_within_alone(capsys, tmp_path):
    folder = write_run(
        tmp_path / "run",
        [*engine("f16"), *engine("q8_0"), *engine("q4_0", lambda i: [i, 7])],
        manifests=[records.manifest()],
    )
    assert kvbench("compare", folder, "--baseline", "f16", "--margin", 0.05) == 0
    printed = capsys.readouterr().out
    assert line(printed, "q8_0").endswith(" within") and "150 of 150" in line(printed, "q8_0")
    assert line(printed, "q4_0").endswith(" within by score") and "0 of 150" in line(printed, "q4_0")
    assert "within by its score: q4_0, of whose 150 answers 150 are not the baseline's" in printed
    assert kvbench("compare", folder, "--baseline", "f16", "--margin", 0.05, "--min-equal", 0.9) == 1
    printed = capsys.readouterr().out
    assert "the share of equal answers of 0.9 is not kept by q4_0" in printed and "by its score" not in printed
    assert line(printed, "q4_0").endswith(" broken") and line(printed, "q8_0").endswith(" within")


def test_equal_answers_are_judged_by_their_interval(capsys, tmp_path):
    """By tokens where both have them, else by text."""
    texts = [one | {"tokens": None} for one in engine("q8_0", n=20)]
    few = write_run(tmp_path / "few", [*engine("f16", n=20), *texts], manifests=[records.manifest()])
    assert kvbench("compare", few, "--baseline", "f16", "--min-equal", 0.9) == 3
    told = capsys.readouterr().out
    assert (
        "q8_0, whose equal answers of 1 (0.8" in told
        and "over 20 units cannot be distinguished from 0.9: 0.9 takes" in told
    )
    assert kvbench("compare", few, "--baseline", "f16", "--min-equal", 0.5) == 0
    near = write_run(
        tmp_path / "near",
        [*engine("f16"), *engine("q8_0", lambda i: [i, 7][: 1 + (i % 10 > 0)])],
        manifests=[records.manifest()],
    )
    assert kvbench("compare", near, "--baseline", "f16", "--min-equal", 0.1) == 3
    assert "cannot be distinguished from 0.1\n" in capsys.readouterr().out


def test_answers_without_a_score_are_compared_alone(capsys, tmp_path):
    unscored = {"scores": {}, "distance": None}
    folder = write_run(
        tmp_path / "run", [one | unscored for one in [*engine("f16"), *engine("q8_0")]], manifests=[records.manifest()]
    )
    assert kvbench("compare", folder, "--baseline", "f16", "--min-equal", 0.9) == 0
    printed = capsys.readouterr().out
    assert "answers beside those of f16" in printed and line(printed, "q8_0").split()[1:] == "150 of 150 within".split()
    assert "--margin is about a score" in mistake(capsys, folder, "--baseline", "f16", "--margin", "0.02")
    assert kvbench("compare", folder, "--baseline", "f16") == 0


def test_one_setting_of_two_runs_is_compared_on_their_shared_samples(capsys, tmp_path):
    before, after = run(tmp_path / "before", lambda i: 1.0), run(tmp_path / "after", lambda i: float(i % 4 > 0), n=30)
    assert kvbench("compare", before, after, "--baseline", "before: SnapKV 0.2", "--margin", "0.02") == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("after: snapkv 0.2"))
    assert line.split()[3] == "-0.267" and line.split()[8] == "0/22/8" and line.endswith("broken")
    told = mistake(capsys, before, after, "--baseline", "snapkv 0.2")
    assert "is in several runs: 'before: snapkv 0.2' or 'after: snapkv 0.2'" in told
    assert "'full' is in several runs" in mistake(capsys, before, after)


def test_samples_about_one_text_are_one_unit_if_either_run_says_so(capsys, tmp_path):
    """A run of a version whose records have no unit made forty units of four texts, where it was named first."""

    def half(i):
        return float(i // 10 % 2)

    before = run(tmp_path / "before", half)
    about = [record(f"s{i}", "snapkv 0.2", half(i), unit=f"text {i // 10}") for i in range(40)]
    after = write_run(tmp_path / "after", about, manifests=[manifest()])
    printed = []
    for runs in ((before, after), (after, before)):
        kvbench("compare", *runs, "--baseline", "before: full")
        printed.append(line(capsys.readouterr().out, "after: snapkv"))
    assert printed[0] == printed[1] and "-0.985 to +0.727" in printed[0]


def test_fullkvs_name_in_another_storage_is_no_baseline_by_itself(capsys, tmp_path):
    kivi = json.dumps(
        {"_target_": "kvbench.methods.FullKV", "storage": {"_target_": "kvbench.methods.Kivi", "bits": 4}}
    )
    made = [record(f"s{i}", "full", 1.0, parameters=kivi) for i in range(40)]
    made += [record(f"s{i}", "snapkv 0.2", 1.0) for i in range(40)]
    folder = write_run(tmp_path / "run", made, manifests=[manifest()])
    label = "full (storage._target_=kvbench.methods.Kivi, storage.bits=4)"
    assert f"unknown --baseline 'full'. Allowed: {label}, snapkv 0.2" in mistake(capsys, folder)
    assert kvbench("compare", folder, "--baseline", label) == 0


def test_other_metrics_can_be_compared(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: 0.5)
    assert kvbench("compare", folder, "--metric", "exact", "--baseline", "snapkv 0.2") == 0
    printed = capsys.readouterr().out
    assert "exact: difference from SnapKV 0.2" in printed and rows(printed)["H2O 0.2"][0] == "+0.500"


def test_mistakes_are_one_line_with_what_is_allowed(capsys, tmp_path):
    folder = run(tmp_path / "run", lambda i: 1.0)
    assert "unknown --baseline 'snapkw'" in (told := mistake(capsys, folder, "--baseline", "snapkw"))
    assert "Allowed: full, h2o 0.2, snapkv 0.2" in told
    assert "unknown metric 'f1'" in (told := mistake(capsys, folder, "--metric", "f1")) and "exact, score" in told
    assert "--margin: 2 must be a number from 0 to 1" in mistake(capsys, folder, "--margin", "2")
    assert "--margin: x must be" in mistake(capsys, folder, "--margin", "x")
    assert "--margin: nan must be" in mistake(capsys, folder, "--margin", "nan")
    assert "--min-equal: 1 must be a number from 0 to below 1" in mistake(capsys, folder, "--min-equal", "1")
    assert "--max-kl: -1 must be a number of nats" in mistake(capsys, folder, "--max-kl=-1")
    assert "--min-top1: no record has top1 from the baseline" in mistake(capsys, folder, "--min-top1", "0.9")
    assert "there is no folder" in mistake(capsys, tmp_path / "none")
    other = run(tmp_path / "other", lambda i: 1.0, answers=["other"])
    assert "'s0' has other answers" in mistake(capsys, folder, other, "--baseline", "run: full")
    third = run(tmp_path / "third", lambda i: 1.0, benchmark="another")
    assert "several benchmarks share no samples" in mistake(capsys, folder, third, "--baseline", "run: full")


def prompts(run, end="some text. What?"):
    """`samples.jsonl` of a run's folder, with these ends of prompts."""
    rows = [sample_row(f"s{i}", end) for i in range(40)]
    (run / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_samples_of_one_name_with_other_prompts_are_no_pairs(capsys, tmp_path):
    one = prompts(run(tmp_path / "one", lambda i: 1.0))
    other = prompts(run(tmp_path / "other", lambda i: 1.0, data_sha256="ef" * 32), "another text. What?")
    said = mistake(capsys, one, other, "--margin", 0.5)
    assert f"the runs are not over the same samples: 's0' has other prompts in {one} and {other}" in said
    prompts(other)  # of data that only begin alike
    assert kvbench("compare", one, other, "--baseline", "one: full") == 0
    assert "prompts" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, end, warning",
    [
        ({"model": "another"}, "another text. What?", "prompts differ with the model, first 's0'"),
        ({"model": "another"}, "some text. What?", None),
        ({}, None, "not both have the prompts"),
    ],
)
def test_prompts_that_may_differ_are_a_warning(more, end, warning, capsys, tmp_path):
    one = prompts(run(tmp_path / "one", lambda i: 1.0))
    other = run(tmp_path / "other", lambda i: 1.0, data_sha256="ef" * 32, **more)
    if end is not None:
        prompts(other, end)
    assert kvbench("compare", one, other, "--baseline", "one: full") == 0
    said = capsys.readouterr().err
    assert said == "" if warning is None else said.count("\n") == 1 and warning in said


def test_scores_of_other_versions_of_a_metric_are_a_warning(capsys, tmp_path):
    """Answers that had not changed were better or worse without a word."""
    one, same, other = (run(tmp_path / name, lambda i: 1.0) for name in ("one", "same", "other"))
    of_other = manifest(versions={"settings": {}, "benchmark": {"NeedleInAHaystack": 1, "needle": 2}})
    (other / "manifests" / "0.json").write_text(json.dumps(of_other))
    assert kvbench("compare", one, same, "--baseline", "one: full") == 0
    assert capsys.readouterr().err == ""
    assert kvbench("compare", one, other, "--baseline", "one: full") == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "other versions (needle 1 and 2): equal answers may have other scores" in said
    (other / "manifests" / "0.json").unlink()
    assert kvbench("compare", one, other, "--baseline", "one: full") == 0
    assert "other versions" not in capsys.readouterr().err, "nothing is known without a manifest"
