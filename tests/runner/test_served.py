"""`kvbench served` and `compare --latency-margin`: quality beside serving, from made records."""

import shutil
from importlib import import_module

import pytest

from kvbench.errors import UserError
from kvbench.records.same_answer import answer_hash
from kvbench.report.tables import differences
from kvbench.report.tables.served_table import MARGIN
from kvbench.runner import compare, latency_gate, served
from tests.support import records as made_up
from tests.support.paths import DATA
from tests.support.served_runs import engine_record, load_record, served_runs, write

pytestmark = pytest.mark.filterwarnings("ignore:no manifest of run")


@pytest.fixture
def runs(tmp_path):
    served_runs(tmp_path)
    return tmp_path


def test_one_table_and_a_sentence_of_what_it_shows_and_does_not(runs):
    assert served.main([str(runs), "--baseline", "f16", "--out", str(runs / "out")]) == 0
    text = (runs / "out" / "served.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "190 of 200" in rows["q8_0 · 1 at once"] and "190 of 200" not in rows["q8_0 · 4 at once"]
    assert "-0.500 (" in rows["q4_0 · 1 at once"] and "1.20 (" in rows["q8_0 · 4 at once"]
    assert "q8_0 loses at most 0.02 of score and gives 1.20 times f16's tokens a second at 4 at once" in text
    assert "Not shown: other prompts" in text and "at most 4 requests ran and 0 waited" in text
    assert (runs / "out" / "served.png").exists() and (runs / "out" / "served.csv").exists()


def test_runs_of_other_kinds_in_the_folder_are_left_out_in_a_line(runs, capsys):
    write(runs / "probes", [made_up.record("probe", sample="s")])
    assert served.main([str(runs), "--baseline", "f16"]) == 0
    printed = capsys.readouterr()
    assert "q8_0 loses at most 0.02" in printed.out and "probes is a run of probes" in printed.err


def shown(folder, baseline):
    """The table's cells by row and column, and the whole text."""
    out = folder / f"by {baseline}"
    assert served.main([str(folder / "runs"), "--baseline", baseline, "--out", str(out)]) == 0
    text = (out / "served.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}, text


def answered(folder, answers):
    """A folder `runs` of these answers, with one load for each setting."""
    write(folder / "runs" / "answers", answers)
    settings = dict.fromkeys(record["setting"] for record in answers)
    write(folder / "runs" / "loads", [load_record(setting, 1.0, FIRST, TOKENS) for setting in settings])


def test_equal_answers_and_divergence_are_from_the_baseline_that_was_chosen(tmp_path):
    first = [engine_record("first", number, 1.0, None, tokens=[number]) for number in range(4)]
    second = [
        engine_record("second", number, 1.0, False, tokens=[7])
        | {"baseline": f"first {answer_hash(first[number])}", "distance": {"kl_at_least": 0.25}}
        for number in range(4)
    ]
    third = [engine_record("third", number, 1.0, False, tokens=[7]) for number in range(4)]
    answered(tmp_path, [*first, *second, *third])
    row = shown(tmp_path, "first")[0]["second · 1 at once"]
    assert (row["equal answers"], row["kl"]) == ("0 of 4", "0.2500")
    by_third = shown(tmp_path, "third")[0]
    assert by_third["second · 1 at once"]["equal answers"] == "4 of 4" and "kl" not in by_third["second · 1 at once"]
    assert by_third["first · 1 at once"]["equal answers"] == "0 of 4"


def test_scores_are_means_over_tasks_as_their_difference_is(tmp_path):
    tasks = {"long": (range(90), 0.5, 0.6), "short": (range(90, 100), 1.0, 0.2)}
    answered(
        tmp_path,
        [
            engine_record(setting, number, (of_f16, of_q8)[setting == "q8_0"], None, task=task)
            for setting in ("f16", "q8_0")
            for task, (numbers, of_f16, of_q8) in tasks.items()
            for number in numbers
        ],
    )
    rows, _ = shown(tmp_path, "f16")
    assert rows["f16 · 1 at once"]["score"] == "0.750" and rows["q8_0 · 1 at once"]["score"] == "0.400"
    assert rows["q8_0 · 1 at once"]["difference"].startswith("-0.350 (")


def test_a_baseline_at_the_floor_is_no_reason_for_advice(tmp_path):
    answered(tmp_path, [engine_record(of, number, 0.0, None) for of in ("f16", "q8_0") for number in range(200)])
    _, text = shown(tmp_path, "f16")
    assert "no setting is shown to lose at most 0.02 of score: keep f16; q8_0: undecided, as f16's own score is" in text


def test_advice_is_of_the_largest_load_that_the_baseline_has_too(runs, capsys):
    write(runs / "more", [load_record("q8_0", 16.0, [90.0, 91.0, 89.0], [960.0, 961.0, 959.0])])
    assert served.main([str(runs), "--baseline", "f16"]) == 0
    assert "1.20 times f16's tokens a second at 4 at once" in " ".join(capsys.readouterr().out.split())


def test_advice_without_loads_of_the_baseline_is_of_quality_alone(runs, capsys):
    write(runs / "alone", [load_record("q8_0", 16.0, [90.0, 91.0, 89.0], [960.0, 961.0, 959.0])])
    assert served.main([str(runs / "answers"), str(runs / "alone"), "--baseline", "f16"]) == 0
    assert "f16 was not loaded, so no speed is compared" in " ".join(capsys.readouterr().out.split())


def test_a_report_of_another_tool_stands_beside_them(runs, capsys):
    report = f"q8_0={DATA / 'aiperf_report.json'}"
    assert served.main([str(runs / "answers"), "--baseline", "f16", "--report", report]) == 0
    assert "aiperf" in (shown := " ".join(capsys.readouterr().out.split())) and "f16 was not loaded" in shown


@pytest.mark.parametrize("setting", ["q8_0", "llama_cpp f16/f16 swa_full=true"])
def test_a_reports_setting_and_path_may_have_equals_signs(setting, tmp_path):
    (tmp_path / "rate=4").mkdir()
    report = shutil.copy(DATA / "aiperf_report.json", tmp_path / "rate=4" / "g.json")
    assert served.reported(f"{setting}={report}")["setting"].tolist() == [setting]
    with pytest.raises(UserError, match=r"^rate=4/nothing\.json cannot be read"):
        served.reported("q8_0=rate=4/nothing.json")
    titles = served.reported(f"SnapKV 0.5={report}", ["full", "snapkv 0.5"])["setting"].tolist()
    assert titles == ["snapkv 0.5"]  # as tables name it: its loads stood in a row of their own


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["{}/loads"], "no run of answers"),
        (["{}/answers"], "no run of benchmark=serve"),
        (["{}/answers", "--report", "x.json"], "is not SETTING=FILE"),
        (["{}/answers", "--report", "q8_0=nothing.json"], "nothing.json cannot be read"),
        (["{}", "--margin", "2"], "--margin: 2 must be a number from 0 to 1"),
        (["{}", "--baseline", "q5"], "--baseline"),
    ],
)
def test_mistakes_are_one_line(runs, arguments, words):
    with pytest.raises(UserError, match=words):
        served.main([one.format(runs) for one in arguments])


@pytest.mark.parametrize("command", [served, compare])
def test_settings_are_compared_with_the_baseline_and_not_with_each_other(command, runs, monkeypatch):
    asked = []
    given = differences.paired_interval
    monkeypatch.setattr(differences, "paired_interval", lambda *a, **k: asked.append(a) or given(*a, **k))
    more = ["--report", f"q8_0={DATA / 'aiperf_report.json'}"] if command is served else []
    command.main([str(runs / "answers"), "--baseline", "f16", *more])
    assert len(asked) == 2  # q8_0 and q4_0


def test_help_names_the_margin_that_advice_has(capsys):
    with pytest.raises(SystemExit):
        served.main(["--help"])
    assert f"allows (default: {MARGIN:g})" in " ".join(capsys.readouterr().out.split())


def test_flags_or_versions_that_differ_are_said(runs, capsys):
    write(runs / "later", [load_record("q8_0", 8.0, [1.0], [1.0], " another version")])
    served.main([str(runs / "answers"), str(runs / "later"), "--baseline", "f16"])
    assert "q8_0 answered and was loaded with other flags or another version" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, code, words",
    [
        (
            ["--latency-margin", "0.2"],
            1,
            "the latency margin of 0.2 is not kept by q4_0, 1 at once: first token × 2.00",
        ),
        (["--latency-margin", "1.5"], 0, "latencies within 1.5 of f16's: 4 of 4"),
        (["--latency-margin", "1"], 3, "undecided, which is not passed: q4_0"),
        (["--latency-margin", "1", "--allow-undecided"], 0, "undecided, which is not passed: q4_0"),
        (["--latency-margin", "1.5", "--margin", "0.1"], 1, "the margin of 0.1 is not kept by q4_0"),
    ],
)
def test_compare_gates_on_latencies_and_on_scores(runs, capsys, more, code, words):
    assert compare.main([str(runs), "--baseline", "f16", *more]) == code
    assert words in " ".join(capsys.readouterr().out.split())


def test_the_gate_needs_loads_and_a_number(runs):
    for arguments, words in (
        ([str(runs / "answers"), "--latency-margin", "0.1"], "needs a run of benchmark=serve"),
        ([str(runs), "--latency-margin", "x"], "must be a number from 0 to 100"),
        ([str(runs)], "is a run of servers under load"),
    ):
        with pytest.raises(UserError, match=words):
            compare.main([*arguments, "--baseline", "f16"])


def gated(folder, *records):
    """The exit code of the gate with a margin of a tenth, over f16, which was loaded twice, and other records."""
    f16 = [load_record("f16", rate, FIRST, TOKENS) for rate in (1.0, 32.0)]
    write(folder / "loads", [*f16, load_record("fp8", 1.0, FIRST, TOKENS), *records])
    return compare.main([str(folder), "--baseline", "f16", "--latency-margin", "0.1"])


FIRST, TOKENS = [100.0, 101.0, 99.0], [50.0, 51.0, 49.0]


@pytest.mark.parametrize(
    "under_32, code, words",
    [
        ([], 3, "undecided, which is not passed: fp8, 32 at once: there is no record of this load"),
        (
            [load_record("fp8", 32.0, [], [], answered=0, failed=60)],
            3,
            "fp8, 32 at once: no first token to compare; 60 of 60 requests have no answer, 0 of 20 of f16",
        ),
        (
            [load_record("fp8", 32.0, [50.0, 51.0, 49.0], TOKENS, answered=3, failed=50, unfinished=7)],
            3,
            "; 57 of 60 requests have no answer, 0 of 20 of f16",
        ),
        (
            [load_record("fp8", 32.0, [500.0, 510.0, 490.0], TOKENS, answered=3, failed=57)],
            1,
            "the latency margin of 0.1 is not kept by fp8, 32 at once: first token × 5.00",
        ),
        ([load_record("fp8", 32.0, FIRST, TOKENS)], 0, "latencies within 0.1 of f16's: 2 of 2"),
    ],
)
def test_a_server_that_failed_a_load_of_the_baseline_does_not_pass(tmp_path, capsys, under_32, code, words):
    assert gated(tmp_path, *under_32) == code
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_folder_of_loads_that_lacks_records_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        import_module("kvbench.records.load"), "unfinished", lambda folder: "unfinished: 3 of 4 records"
    )
    gated(tmp_path, load_record("fp8", 32.0, FIRST, TOKENS))
    assert "unfinished: 3 of 4 records" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model": "large"}, "the loads differ in model: 'tiny' or 'large': name only those"),
        ({"prompts_of": "jsonl", "prompts_sha256": "cd" * 32}, "differ in prompts: 'jsonl abab.*' or 'jsonl cdcd"),
        ({"requested": {"new_tokens": 256}}, "differ in new tokens: '128' or '256'"),
        ({"processor": "another CPU"}, "differ in machine: 'a CPU' or 'another CPU'"),
        ({}, "'f16' was loaded twice with 1 at once"),
    ],
)
def test_loads_that_cannot_be_compared_are_refused_by_both_commands(tmp_path, changes, words):
    alike = {"prompts_of": "jsonl", "prompts_sha256": "ab" * 32, "requested": {"new_tokens": 128}, "processor": "a CPU"}
    write(tmp_path / "answers", [engine_record(of, number, 1.0, None) for of in ("f16", "q8_0") for number in range(3)])
    for name, more in (("loads", alike), ("others", alike | changes)):
        records = [load_record(of, 1.0, FIRST, TOKENS, **more) | {"key": name + of} for of in ("f16", "q8_0")]
        write(tmp_path / name, records)
    runs = [str(tmp_path / name) for name in ("answers", "loads", "others")]
    gate = ["--baseline", "f16", "--latency-margin", "0.1"]
    for command in (lambda: compare.main([*runs, *gate]), lambda: served.main(runs)):
        with pytest.raises(UserError, match=words):
            command()


def test_answers_of_one_model_do_not_stand_beside_loads_of_another(runs):
    write(runs / "large", [load_record("f16", 1.0, FIRST, TOKENS, model="large")])
    with pytest.raises(UserError, match="f16 answered as tiny, and was loaded as large"):
        served.main([str(runs / "answers"), str(runs / "large")])


@pytest.mark.parametrize(
    "baseline, found",
    [
        ("vllm: fp8", "vllm: fp8"),  # on loads alone, or of one run's answers
        ("answers: vllm: fp8", "vllm: fp8"),
        ("answers: fp8", "fp8"),
        ("fp8", "fp8"),
        ("FullKV", "full"),
        ("f16", "vllm: f16"),
    ],
)
def test_a_baseline_with_a_colon_is_found_among_loads(baseline, found):
    assert latency_gate.of_loads(baseline, ["sglang: fp8", "vllm: fp8", "vllm: f16", "fp8", "full"]) == found


def test_a_baseline_that_was_not_loaded_is_not_another_engines(runs):
    write(runs / "colons", [load_record(label, 1.0, [9.0], [9.0]) for label in ("vllm: fp8", "sglang: fp8")])
    loads = [str(runs / "colons"), "--latency-margin", "0.1", "--allow-undecided"]
    assert compare.main([*loads, "--baseline", "vllm: fp8"]) == 0
    with pytest.raises(UserError, match="unknown --baseline 'trt: fp8'"):
        compare.main([*loads, "--baseline", "trt: fp8"])


def test_one_repeat_is_undecided():
    nan = float("nan")
    assert latency_gate.verdict(nan, nan, 0.1) == "undecided"
    assert [latency_gate.verdict(*ends, 0.1) for ends in ((0.9, 1.1), (1.05, 1.2), (1.11, 1.2))] == [
        "within",
        "undecided",
        "broken",
    ]
