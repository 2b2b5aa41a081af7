"""gpu_check.py judges, a crash ends one row, a further run continues, and all rows run on a tiny model."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kvbench.ops import operator
from scripts.benchmarks import gpu_check
from scripts.benchmarks.gpu import batches, judge, presets
from scripts.benchmarks.gpu.processes import Row, Rows
from scripts.benchmarks.gpu.report import goals, others
from scripts.benchmarks.gpu.rows import Check, Stage, first_of_each_kind, small, stages_of
from scripts.benchmarks.gpu.stages import Clock, attempted
from tests.support.config import NAMES
from tests.support.every_method import setting
from tests.support.gpu_rows import GOOD

WORK = "tests.support.gpu_rows:"


@pytest.mark.slow
def test_a_dry_run_goes_through_every_row(tmp_path, monkeypatch):
    """All presets go through the same code; some of each kind of cache do here."""
    names = ["snapkv", "spindle", "kivi"]
    words = ["gpu_check.py", "--dry-run", f"--out={tmp_path}", "--name=here", "--minutes=600", "--presets", *names]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(gpu_check, "stages_of", lambda check: [for_a_busy_machine(stage) for stage in stages_of(check)])
    assert gpu_check.main() == 0
    result = json.loads((tmp_path / "here" / "results.json").read_text())
    rows = result["rows"]
    assert not result["failed"] and not result["left"]
    assert [line.split(":")[0] for line in result["stages"]] == ["right", "fast", "long", "rest"]
    assert all("nothing failed" in line and " 0 left" in line for line in result["stages"])
    for name in names:
        assert rows[f"preset/{name}"]["tokens_equal"] and rows[f"preset/{name}"]["outputs"] == 0
    assert {name.split("/")[0] for name in rows} == {
        *(
            "preset",
            "heads",
            "batch",
            "generate",
            "quantised",
            "fused",
            "bent",
            "second device",
            "length",
            "bytes",
            "speed",
            "class",
            "run",
        ),
    }
    assert rows["run/niah"]["equal"] == rows["run/niah"]["records"] == 30
    assert rows["class/gpt_oss"]["logits"] == 0 and rows["class/llama"]["graph_tokens"]
    for n in (300, 700):
        assert {"batch", "generate", "column_sums", "settings"} <= set(rows[f"speed/{n}"])
    text = (tmp_path / "here" / "README.md").read_text()
    assert "| spindle | equal | 1 | 0.0e+00 | equal |" in text and "## Goals" in text


def for_a_busy_machine(stage: Stage) -> Stage:
    """The stage with all the time that it may need."""
    return replace(stage, minutes=60, rows=lambda seconds: [replace(row, most=3600) for row in stage.rows(seconds)])


def check(tmp_path, monkeypatch, *rows: Row) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--dry-run", f"--out={tmp_path}", "--presets", "full"])
    monkeypatch.setattr(gpu_check, "stages_of", lambda check: [Stage("right", 1, lambda seconds: list(rows))])
    monkeypatch.setattr(gpu_check, "WORK", WORK)
    return gpu_check.main()


@pytest.mark.slow
def test_a_crash_ends_one_row_and_the_exit_code_says_that_something_failed(tmp_path, monkeypatch):
    rows = [Row(f"preset/{name}", f"{WORK}{name}") for name in ("crashes", "fails", "good")]
    assert check(tmp_path, monkeypatch, *rows) == gpu_check.FAILED
    text = (tmp_path / "a-test" / "README.md").read_text()
    assert "- preset/crashes: the process ended by SIGABRT\n" in text
    assert "- preset/fails: ValueError: no such\n" in text and "| good | equal | 1 | 0.0e+00 | equal |" in text


@pytest.mark.heavy
def test_a_further_run_continues_where_the_time_was_up(tmp_path):
    log = tmp_path / "log"
    good = Row("preset/good", f"{WORK}good", (str(log),))
    rows = [good, Row("length/1", f"{WORK}sleeps", most=600), Row("length/2", f"{WORK}good", (str(log),))]
    stopped = Rows(tmp_path / "rows", {"git": "a"}, clock := Clock(1))
    stopped.run([good])
    clock.end = clock.end - 58
    stopped.run(rows)
    assert stopped.left == ["length/1", "length/2"] and log.read_text() == "run\n"
    rows[1] = Row("length/1", f"{WORK}good", (str(log),))
    again = Rows(tmp_path / "rows", {"git": "a"}, Clock(1))
    again.run(rows)
    assert not again.left and list(again.found) == [row.name for row in rows] and log.read_text() == 3 * "run\n"
    other = Rows(tmp_path / "rows", {"git": "b"}, Clock(1))  # other code
    other.run([good])
    assert log.read_text() == 4 * "run\n"


def test_stages_are_chosen_by_name_and_a_copy_without_git_is_told_its_commit(tmp_path, monkeypatch):
    run: list[str] = []
    words = ["gpu_check.py", "--dry-run", f"--out={tmp_path}", "--stages", "b", "a", "--commit", "f00"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(gpu_check, "machine_of", lambda check, *_: {"name": "a test", "git": check.commit})
    monkeypatch.setattr(
        gpu_check,
        "stages_of",
        lambda check: [Stage(name, 1, lambda seconds, name=name: run.append(name) or []) for name in "abc"],
    )
    assert gpu_check.main() == 0 and run == ["b", "a"]
    result = json.loads((tmp_path / "a-test" / "results.json").read_text())
    assert result["machine"]["git"] == result["environment"]["git"] == "f00"


def test_the_first_stage_has_a_preset_of_each_kind_and_the_last_one_the_others():
    right, fast, long, rest = ([row.name for row in stage.rows(100.0)] for stage in stages_of(Check(dry_run=False)))
    presets_of = lambda names: {name.split("/")[1] for name in names if name.startswith("preset/")}  # noqa: E731
    assert presets_of(right) | presets_of(rest) == {*NAMES} and not presets_of(right) & presets_of(rest)
    assert {"full", "kivi", "spindle", "h2o"} <= presets_of(right) and len(presets_of(right)) < len(NAMES)
    assert fast == ["speed/8192", "speed/32768"] and "speed/131072" in long
    assert {"generate/float32", "generate/bfloat16", "quantised/nf4", "heads/128 4"} <= {*right}
    assert first_of_each_kind(["snapkv", "pyramidkv", "pyramidkv"]) == ["snapkv", "pyramidkv"]


FUSED = {"tokens": [1, 2], "eager_tokens": [1, 2], "close_call": None, "engine": "fused"}


@pytest.mark.parametrize(
    "name, one, lines",
    [
        ("generate/float32", {"tokens": [1, 2], "generated": [1, 3], "close_call": None}, 1),
        ("generate/float32", {"tokens": [1, 2], "generated": [1, 3], "close_call": 1}, 0),
        ("quantised/nf4", {"absent": "bitsandbytes is not installed"}, 0),
        ("quantised/nf4", {"tokens": [1], "generated": [1], "close_call": None, "settings": {"full": GOOD}}, 0),
        (
            "quantised/nf4",
            {"tokens": [1], "generated": [2], "close_call": None, "settings": {"full": GOOD | {"graph_steps": 0}}},
            2,
        ),
        ("fused/float32", {"absent": "fused layers need a GPU"}, 0),
        ("fused/float32", {"full": FUSED}, 0),
        ("fused/float32", {"full": FUSED | {"tokens": [1, 3]}}, 1),
        ("fused/float32", {"full": FUSED | {"tokens": [1, 3], "close_call": 1}}, 0),
        ("fused/float32", {"full": FUSED | {"tokens": [1, 3], "engine": "eager"}}, 2),
        ("bent/64 float32", {"fallback": None, "sinks": {"difference": 0.1, "over_allowed": 0.9}}, 0),
        ("bent/64 float32", {"fallback": "no C compiler", "sinks": {"difference": 0.1, "over_allowed": 1.1}}, 2),
        ("run/niah", {"records": 30, "pairs": 30, "different": []}, 0),
        ("run/niah", {"records": 30, "pairs": 29, "different": ["H2O"]}, 2),
        ("class/gpt_oss", {"absent": "refused"}, 0),
        ("class/gpt_oss", GOOD | {"logits": 0.0}, 0),
        ("class/gpt_oss", GOOD | {"logits": 2e-3, "tokens": [7], "graph_steps": 0}, 2),
        ("class/gpt_oss", GOOD | {"logits": 0.0, "graph_tokens": [7]}, 1),
        ("speed/8192", {"settings": {"full": {"expected": ["graph"], "graph_tokens_per_s": None}}}, 1),
        ("speed/8192", {"settings": {"full": {"expected": ["graph"], "graph_tokens_per_s": 9.0}}}, 0),
        ("speed/8192", {"settings": {}, "batch": {"expected": ["graph"], "graph_tokens_per_s": None}}, 1),
    ],
)
def test_tokens_of_generate_weights_in_four_bits_and_missing_speeds_are_judged(name, one, lines):
    assert len(judge.failures({name: one}, complete=False)) == lines


def test_rows_that_are_left_have_an_exit_code_of_their_own(tmp_path, monkeypatch):
    class Left(Rows):
        def run(self, rows):
            self.left += [row.name for row in rows]

    monkeypatch.setattr(gpu_check, "Rows", Left)
    monkeypatch.setattr(gpu_check, "machine_of", lambda *_: {"name": "a test"})
    assert check(tmp_path, monkeypatch, Row("preset/good", f"{WORK}good")) == gpu_check.LEFT
    assert "Left for another run, for there was no time: preset/good." in (tmp_path / "a-test/README.md").read_text()


@pytest.mark.parametrize(
    "change, line",
    [
        ({"kept_equal": False}, "other tokens are kept than on the CPU"),
        ({"outputs": 2e-3}, "attention differs by 2.0e-03 from the CPU's, more than 1e-03"),
        ({"outputs": float("nan")}, "attention differs by nan from the CPU's, more than 1e-03"),
        ({"cpu_tokens": [1, 3]}, "other tokens are decoded than on the CPU"),
        ({"graph_tokens": [1, 3, 3]}, "other tokens are decoded by a CUDA graph than step by step"),
        ({"graph_steps": 0}, "no step is repeated by a CUDA graph"),
        ({"error": "x"}, "x"),
        ({"outputs": 3e-2, "by_rounding": 2e-2}, "attention differs by 3.0e-02 from the CPU's, more than 2e-02"),
    ],
)
def test_every_comparison_of_a_preset_has_a_threshold(change, line):
    assert judge.failures({"preset/a": GOOD}, complete=False) == []
    assert judge.failures({"preset/a": GOOD | change}, complete=False) == [f"preset/a: {line}"]


def test_what_rounding_alone_changes_is_allowed():
    assert judge.failures({"preset/a": GOOD | {"outputs": 1e-2, "by_rounding": 2e-2}}, complete=False) == []


def test_a_close_call_excuses_only_later_tokens():
    late = {"tokens": [1, 2, 3], "cpu_tokens": [1, 2, 4]}
    assert judge.failures({"preset/a": GOOD | late | {"close_call": 2}}, complete=False) == []
    assert judge.failures({"preset/a": GOOD | late | {"close_call": 3}}, complete=False) != []


def test_operators_that_no_preset_called_are_listed():
    lines = judge.failures({"preset/a": GOOD}, complete=True)
    assert "operator packed_attention was never called" in lines
    assert "operator quantise was never called" not in lines


@pytest.mark.parametrize("name, kernel", [("kivi", "quantised_attention"), ("spindle", "codebook_append")])
def test_a_broken_kernel_fails(name, kernel, monkeypatch):
    """What `kernels=auto` calls is broken, and not the reference that `kernels=torch` calls."""
    one, model = setting(name, ratio=presets.RATIO), small(Check(dry_run=True), "cpu")
    good = presets.operators(one, model, 120)
    assert kernel in good and list(judge.compared(good)) == []
    working = operator.implementation

    def broken(reference, device):
        function = working(reference, device)
        if reference.__name__ != kernel or operator.chosen() == "torch":
            return function

        def wrong(first, *rest):
            tensor = first if kernel == "quantised_attention" else first.entries
            tensor.mul_(1.001 if kernel == "quantised_attention" else 1.5)
            return function(first, *rest)

        return wrong

    monkeypatch.setattr(operator, "implementation", broken)
    assert any(line.startswith(kernel) for line in judge.compared(presets.operators(one, model, 120)))


def test_what_there_is_no_time_for_is_skipped_and_named():
    clock = Clock(minutes=1)
    assert list(clock.each(["a", "b"])) == ["a", "b"]
    clock.stage(-1)
    assert list(clock.each([1, 2], name="bytes of {}".format)) == []
    assert clock.skipped == ["bytes of 1", "bytes of 2"]


def test_an_error_is_a_result_and_goals_without_one_are_empty():
    assert attempted(lambda: 1 / 0) == {"error": "ZeroDivisionError: division by zero"}
    found = {name: value for name, _, value in goals([{"n": 8, "error": "no"}])}
    assert set(found.values()) == {""}
    length = {"n": 8, "prefill_seconds": 2.0, "settings": {"full": {"decode_tokens_per_s": 10.0}}}
    length["settings"]["spindle"] = {"decode_tokens_per_s": 12.0, "compress_seconds": 0.1}
    assert [value for _, _, value in goals([length])] == ["8: 1.20", "8: 5.0%", "", ""]


def test_a_batch_is_said_to_be_equal_only_where_its_tokens_are(monkeypatch):
    """In 16 bits a comparison may end at the first token, which is a close call, and then nothing was compared."""
    monkeypatch.setattr(batches, "decode", lambda *_: [SimpleNamespace(tokens=[])] * 2)
    monkeypatch.setattr(batches, "batched", lambda caches: caches)
    monkeypatch.setattr(batches, "differ", lambda a, b, close_call: False)
    check = Check(dry_run=True)
    row = batches.against_alone(
        [setting(name, ratio=presets.RATIO) for name in ("full", "snapkv")], small(check, "cpu"), 60
    )
    assert "0 of 2 settings" in others({"batch/bfloat16": row})[0]
