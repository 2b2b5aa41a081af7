"""scripts/results/leaderboard_order.py: rank correlations between two parts, and how sure their samples make them."""

import numpy as np
import pandas as pd
import pytest

from scripts.benchmarks.measure_order_coverage import KINDS, Case, board, contained
from scripts.results import leaderboard_order
from scripts.results.leaderboard_order import (
    FEWEST,
    LEVELS,
    Part,
    Samples,
    compared,
    difference,
    halves,
    parts_of,
    rows,
    spearman,
    with_earlier_halves,
)

METHODS = [f"m{number}" for number in range(FEWEST)]


def part(model: str, means: np.ndarray, samples: int = 400, name: str = "visible_4k") -> Part:
    """Yes-no scores of one task drawn with these means, one setting of 0.1 of the bytes for each method."""
    drawn = (np.random.default_rng(len(model + name)).random((samples, len(means))) < means).astype(float)
    records = Samples(pd.DataFrame(drawn, columns=METHODS), np.full(samples, ""))
    return board(model, drawn)._replace(name=name, records=records)


def test_equal_values_share_a_rank():
    assert spearman(np.array([1.0, 2, 3]), np.array([0.1, 0.2, 0.9])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert spearman(np.array([1.0, 1, 2]), np.array([1.0, 1 + 1e-12, 2])) == pytest.approx(1)


def test_the_same_order_is_near_1_and_a_method_that_falls_is_named():
    means = np.linspace(0.1, 0.9, FEWEST)
    row = compared(part("a", means), part("bb", means), (0.1, 0.1))
    assert row["correlation"] > 0.95 and row["low"] > 0.9 and row["methods"] == FEWEST
    row = compared(part("a", means), part("bb", np.append(means[:-1], 0.02)), (0.1, 0.1))
    assert row["worse in the second"] == METHODS[-1] and row["high"] < 0.6


def test_more_samples_make_a_correlation_surer():
    means = np.linspace(0.4, 0.6, FEWEST)
    few, many = (compared(part("a", means, n), part("bb", means, n), (0.1, 0.1)) for n in (20, 4000))
    assert many["high"] - many["low"] < few["high"] - few["low"] and many["correlation"] > few["correlation"]


def test_the_interval_of_few_samples_contains_the_correlation_of_the_true_means(monkeypatch):
    """Noise alone lowers correlations."""
    monkeypatch.setattr(leaderboard_order, "DRAWS", 100)
    monkeypatch.setattr(leaderboard_order, "halves", lambda *arguments: "1.00")
    means = np.linspace(0.3, 0.7, FEWEST)
    rows = [compared(part("a" * i, means, 40), part("b" * i, means, 40, "hidden"), (0.1, 0.1)) for i in range(1, 11)]
    assert np.mean([row["low"] <= 1 <= row["high"] for row in rows]) >= 0.9
    assert np.mean([row["correlation"] for row in rows]) < 0.97


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_contains_the_true_correlation_where_scores_are_at_an_end_too(kind, monkeypatch):
    """In drawn samples, what one sample decides between methods at the floor would stay so in every draw.

    Of 100 pairs of boards 89 to 98 do (results/benchmarks/order_coverage.md).
    """
    monkeypatch.setattr(leaderboard_order, "DRAWS", 100)
    rng = np.random.default_rng(0)
    assert np.mean([contained(Case(kind, False), (84, 40), rng) for _ in range(20)]) >= 0.8


def test_parts_are_compared_that_differ_in_model_question_or_length_alone():
    means = np.linspace(0.1, 0.9, FEWEST)
    of_models = {"a": ["visible_2k"], "b": ["visible_4k", "hidden_4k", "hidden_8k", "ruler_4k", "hidden_4k_float32"]}
    parts = [part(model, means, name=name) for model, names in of_models.items() for name in names]
    assert {(row["of"], row["with"]) for row in rows(parts)} == {
        ("a visible 2k", "b visible 4k"),
        ("b visible 4k", "b hidden 4k"),
        ("b visible 4k", "b ruler 4k"),
        ("b hidden 4k", "b hidden 8k"),
        ("b hidden 4k", "b ruler 4k"),
        ("b visible 4k", "b hidden 4k float32"),
        ("b hidden 8k", "b hidden 4k float32"),
        ("b ruler 4k", "b hidden 4k float32"),
    }
    differences = {row["of"] + ", " + row["with"]: difference(row) for row in rows(parts)}
    assert differences["a visible 2k, b visible 4k"] == "model"
    assert differences["b hidden 4k, b hidden 8k"] == "length"
    assert differences["b visible 4k, b hidden 4k"] == "question"
    assert differences["b visible 4k, b hidden 4k float32"] == "question"
    assert differences["b visible 4k, b ruler 4k"] == "needles, RULER"


def test_too_few_methods_in_common_make_no_row():
    means = np.linspace(0.1, 0.9, FEWEST)
    few = part("b", means)
    few = few._replace(settings=few.settings[few.settings["method"] != METHODS[0]])
    assert compared(part("a", means), few, (0.1, 0.1)) is None


def test_a_part_whose_methods_are_nearly_all_at_the_floor_has_no_order():
    spread, floor = np.linspace(0.1, 0.9, FEWEST), np.zeros(FEWEST)
    floor[: LEVELS - 2] = 0.2, 0.5, 0.8
    assert compared(part("a", spread), part("b", floor), (0.1, 0.1)) is None  # with 0, four scores
    floor[LEVELS - 2] = 1.0
    assert compared(part("a", spread), part("b", floor), (0.1, 0.1)) is not None


def published(part: Part) -> Part:
    """The part as its board has it, without its samples."""
    return part._replace(records=None)


def test_a_part_without_records_is_compared_by_its_board_alone(tmp_path):
    means = np.linspace(0.1, 0.9, FEWEST)
    a, b = part("a", means, 40), part("bb", means, 40)
    both, one = compared(a, b, (0.1, 0.1)), compared(published(a), b, (0.1, 0.1))
    assert [one[name] for name in ("correlation", "low", "high")] == [both[n] for n in ("correlation", "low", "high")]
    assert one["halves"].startswith("–, ") and "–" not in both["halves"]
    assert rows([published(a), published(b)])[0]["halves"] == "–, –"


def test_the_halves_of_a_part_whose_records_are_gone_are_those_of_the_table_before(tmp_path):
    means = np.linspace(0.1, 0.9, FEWEST)
    a, b = part("a", means, 40), part("bb", means, 40)
    before = rows([a, b])
    pd.DataFrame(before).to_csv(tmp_path / "order.csv", index=False)
    gone = rows([published(a), published(b)])
    kept = with_earlier_halves(tmp_path / "order.csv", gone)
    assert [row["halves"] for row in kept] == [row["halves"] for row in before]
    more = [{**row, "samples": "41, 40"} for row in gone]
    assert with_earlier_halves(tmp_path / "order.csv", more) == more
    assert with_earlier_halves(tmp_path / "missing.csv", gone) == gone


def test_a_part_of_several_tasks_is_read_from_records_that_name_no_unit(tmp_path, monkeypatch):
    """As RULER's are; every task counts alike, however many of its samples all settings have, as in the board."""
    scores = {"full": [1, 1, 1, 1], "snapkv": [1, 1, 1, 0], "knorm": [0, 0, 1, 1]}
    of_samples = [("a", "a_0"), ("a", "a_1"), ("a", "a_2"), ("b", "b_0")]
    records = [
        {"method": name, "setting": name, "r_bytes": 0.1, "scores": {"score": score}, "task": task, "sample": sample}
        for name, values in scores.items()
        for score, (task, sample) in zip(values, of_samples, strict=True)
    ]
    monkeypatch.setattr(leaderboard_order, "load", lambda folder: pd.DataFrame(records))
    monkeypatch.setattr(leaderboard_order, "begun", lambda runs, board: ["ruler_4k"])
    (ruler,) = parts_of("qwen2.5-coder-1.5b", tmp_path, tmp_path)
    assert ruler.samples == 4 and ruler.question == "ruler"
    means = leaderboard_order.weights(ruler.records.tasks, np.ones(4)) @ ruler.records.scores
    assert means.to_dict() == pytest.approx({"full": 1, "snapkv": 0.5, "knorm": 2 / 3})
    assert ruler.settings.set_index("setting")["score"].to_dict() == pytest.approx(means.to_dict())


def test_samples_are_halved_within_tasks():
    """Of two columns one has the first task's points and the other the second's: no half changes a mean."""
    tasks = np.repeat(["a", "b"], [6, 2])
    scores = pd.DataFrame({"x": (tasks == "a") * 0.5, "y": (tasks == "b") * 1.0, "z": np.ones(8)})
    assert halves(np.random.default_rng(0), Samples(scores, tasks), ["x", "y", "z"]) == "1.00"
