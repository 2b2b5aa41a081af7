"""MATH-500's and AIME's samples: problems in the official prompt, seeds, and tables over repeats."""

import pandas as pd
import pytest

from kvbench.benchmarks import math_problems
from kvbench.errors import UserError
from kvbench.metrics import math_answers, math_equality
from kvbench.utils.hashing import file_hash
from tests.support import math_problems as made
from tests.support.needs import official

OFFICIAL, needs_official = official("math")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return lambda **changes: made.benchmark(tmp_path, monkeypatch, **changes)


def test_a_problem_is_answered_several_times_with_seeds_of_its_own(bench):
    samples = bench().samples(None)
    assert [sample.id for sample in samples[:5]] == [
        "aime24:1:1",
        "aime24:2:1",
        "aime24:3:1",
        "aime25:1:1",
        "aime24:1:2",
    ]
    first, again = samples[0], samples[4]
    assert first.prompt == again.prompt == "Solve add 0 and 20 and end with \\boxed{}."
    assert (first.answers, first.max_new_tokens, first.context_id, first.chat) == (("020",), 32_768, "aime24:1", True)
    assert first.meta == {"task": "aime24", "repeat": 1, "max_new_tokens": 32_768}
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (0.6, 0.95, None)
    assert len({sample.sampling.seed for sample in samples}) == len(samples) == 8


def test_seeds_depend_on_seed_problem_and_repeat_alone(bench):
    def seeds(**changes):
        return {sample.id: sample.sampling.seed for sample in bench(**changes).samples(None)}

    whole = seeds()
    assert seeds(sets=["aime25"], repeats=1, temperature=1.0, top_k=20).items() <= whole.items()
    assert set(seeds(seed=1).values()).isdisjoint(whole.values())
    assert whole["aime25:1:2"] == 202_906_299_088_586  # the same in every version


def test_without_temperature_nothing_is_drawn(bench):
    assert {sample.sampling for sample in bench(temperature=0.0, repeats=1).samples(None)} == {None}
    with pytest.raises(UserError, match="the same answer each time"):
        bench(temperature=0.0)


def test_math_has_shorter_answers_and_says_what_a_problem_is_about(bench, monkeypatch):
    monkeypatch.setattr(math_equality, "find_spec", lambda name: True)
    sample = bench(sets="math500", repeats=1).samples(None)[1]
    assert sample.prompt == "Solve add 1 {and} 2 and end with \\boxed{}."
    assert sample.max_new_tokens == 16_384
    assert sample.meta.items() >= {"subject": "Algebra", "level": 2}.items()
    assert bench(sets="math500", max_new_tokens=9).samples(None)[0].max_new_tokens == 9


def test_math_needs_math_verify(bench, monkeypatch):
    monkeypatch.setattr(math_equality, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Math-Verify, which is not installed: pip install 'kvbench\[math\]'"):
        bench(sets=["math500"])
    bench()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sets": ["aime26"]}, "unknown set in benchmark.sets 'aime26'"),
        ({"data_dir": "/nowhere"}, "is not a folder"),
        ({"prompts_file": "/nowhere"}, "is not a file"),
        ({"repeats": 0}, "at least 1"),
    ],
)
def test_a_wrong_value_is_one_line(bench, changes, message):
    with pytest.raises(UserError, match=message):
        bench(**changes)


def test_files_that_are_not_the_published_ones_are_refused(tmp_path, monkeypatch):
    places = made.places(tmp_path, monkeypatch)
    other = tmp_path / "other.py"
    other.write_text("prompt_template = 'Solve {question}.'")
    with pytest.raises(UserError, match="is not the official one"):
        made.MathProblems(sets="aime25", repeats=1, **(places | {"prompts_file": str(other)}))
    other.write_text("prompt = 1")
    with pytest.raises(UserError, match="no prompt_template"):
        made.MathProblems(sets="aime25", repeats=1, **(places | {"prompts_file": str(other)}))
    (tmp_path / "aime25.jsonl").write_text('{"question": "x", "true_answer": "1"}\n')
    with pytest.raises(UserError, match="is not the published one"):
        made.MathProblems(sets="aime25", repeats=1, **places)


@needs_official
def test_the_published_files_are_proven(monkeypatch):
    monkeypatch.setattr(math_equality, "find_spec", lambda name: True)
    config = {"data_dir": str(OFFICIAL), "prompts_file": str(OFFICIAL / "run_math.py")}
    samples = math_problems.MathProblems(sets=list(math_problems.SETS), repeats=1, **config).samples(None)
    assert len(samples) == 560
    assert file_hash(OFFICIAL / "run_math.py") in math_problems.PROMPTS.values()
    assert all(int(sample.answers[0]) >= 0 for sample in samples if sample.meta["task"] != "math500")


def test_scores_are_those_of_the_set(bench):
    sample = bench().samples(None)[0]
    assert bench().scores(sample, "so \\boxed{20}") == {"correct": 1, "boxed": 1}


@pytest.mark.parametrize("decided, correct, undecided", [(True, 1, 0), (None, 0, 1)])
def test_a_record_of_math_says_whether_the_comparison_was_decided(bench, monkeypatch, decided, correct, undecided):
    """No record could be made: the score `undecided` was none of the benchmark's metrics."""
    monkeypatch.setattr(math_equality, "find_spec", lambda name: True)
    monkeypatch.setattr(math_answers, "equal", lambda expression, text: decided)
    benchmark = bench(sets="math500", repeats=1)
    scores = benchmark.scores(benchmark.samples(None)[1], "so \\boxed{3}")
    assert scores == {"correct": correct, "boxed": 1, "undecided": undecided}
    assert benchmark.metrics == ("correct", "boxed")  # what tables show of each setting


def test_tables_have_means_over_problems_of_means_over_repeats(bench, monkeypatch):
    right = {"aime24:1": (1, 1), "aime24:2": (1, 0), "aime24:3": (0, 0), "aime25:1": (0, 1)}
    benchmark = bench(max_new_tokens=4)
    records = pd.DataFrame(
        {
            **sample.meta,
            "sample": sample.id,
            "context_id": sample.context_id,
            "setting": setting,
            "tokens": [7] * (4 if setting == "full" else 2),
            "scores": {"correct": float(correct), "boxed": 0.5},
        }
        for setting in ("full", "snapkv 0.2")
        for sample in benchmark.samples(None)
        for correct in [right[sample.context_id][sample.meta["repeat"] - 1] if setting == "full" else 0]
    )
    table = benchmark.breakdown(records)
    assert list(table.columns) == ["kind", "task", "samples", "full", "snapkv 0.2"]
    assert table[table["task"].str.startswith("aime24")][
        ["task", "samples", "full", "snapkv 0.2"]
    ].to_numpy().tolist() == [
        ["aime24 avg@2", 6, 50, 0],
        ["aime24 pass@2", 6, pytest.approx(66.67), 0],
        ["aime24 answers boxed, %", 6, 50, 50],
        ["aime24 answers cut, %", 6, 100, 0],
        ["aime24 tokens of an answer", 6, 4, 2],
    ]
    assert table.set_index("task")["full"]["aime25 pass@2"] == 100
    stopped = records[(records["repeat"] == 1) | (records["sample"] == "aime24:2:2")]
    stopped = stopped[(stopped["setting"] == "full") | (stopped["repeat"] == 1)]
    passed = benchmark.breakdown(stopped).set_index("task").loc["aime24 pass@2", ["full", "snapkv 0.2"]]
    assert passed["full"] == 100 and pd.isna(passed["snapkv 0.2"])  # of the one problem with both answers; of none
    math = records.assign(task="math500", scores=[{"correct": 0.0, "boxed": 1.0, "undecided": 1.0}] * len(records))
    assert bench(sets="aime25").breakdown(math).empty
    monkeypatch.setattr(math_equality, "find_spec", lambda name: True)
    assert bench(sets="math500").breakdown(math).set_index("task")["full"]["math500 comparisons undecided, %"] == 100
    only = benchmark.breakdown(records[records["task"] == "aime25"])
    assert set(only["kind"]) == {"task", "aime25"} and only["task"].str.startswith("aime25").all()
