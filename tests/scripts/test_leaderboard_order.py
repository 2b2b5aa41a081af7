"""scripts/results/leaderboard_order.py: rank correlations between two parts, and how sure their samples make them."""

import numpy as np
import pandas as pd
import pytest

from scripts.results import leaderboard_order
from scripts.results.leaderboard_order import FEWEST, LEVELS, Part, compared, earlier, rows, spearman

METHODS = [f"m{number}" for number in range(FEWEST)]


def part(model: str, means: np.ndarray, samples: int = 400, name: str = "visible_4k") -> Part:
    """Yes-no scores drawn with these means, one setting of 0.1 of the bytes for each method."""
    drawn = np.random.default_rng(len(model + name)).random((samples, len(means))) < means
    frame = pd.DataFrame(drawn.astype(float), columns=METHODS).assign(full=1.0)
    settings = pd.DataFrame({"method": frame.columns, "setting": frame.columns, "r_bytes": 0.1, "low": 0, "high": 1})
    settings = settings.assign(samples=samples, score=frame.mean().to_numpy())
    return Part(model, name, frame, settings)


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
    """Noise alone lowers correlations, and those of drawn samples twice: their quantiles seldom contain it."""
    monkeypatch.setattr(leaderboard_order, "DRAWS", 100)
    monkeypatch.setattr(leaderboard_order, "halves", lambda *arguments: 1.0)
    means = np.linspace(0.3, 0.7, FEWEST)
    rows = [compared(part("a" * i, means, 40), part("b" * i, means, 40, "hidden"), (0.1, 0.1)) for i in range(1, 11)]
    assert np.mean([row["low"] <= 1 <= row["high"] for row in rows]) >= 0.9
    assert np.mean([row["correlation"] for row in rows]) < 0.97


def test_a_visible_question_is_compared_with_a_visible_one_of_another_model_and_with_a_hidden_one_of_its_model():
    means = np.linspace(0.1, 0.9, FEWEST)
    parts = [part(*of) for of in (("a", means), ("b", means))] + [part("b", means, name="hidden_4k")]
    assert {(row["of"], row["with"]) for row in rows(parts)} == {
        ("a visible 4k", "b visible 4k"),
        ("b visible 4k", "b hidden 4k"),
    }


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
    """The part as its board has it: the means of its samples."""
    return part._replace(scores=part.settings.set_index("setting")[["score"]].T)


def test_a_part_without_records_is_compared_by_its_means_and_not_drawn():
    means = np.linspace(0.1, 0.9, FEWEST)
    a, b = part("a", means, 40), part("bb", means, 40)
    both, one = compared(a, b, (0.1, 0.1)), compared(published(a), b, (0.1, 0.1))
    assert one["correlation"] == both["correlation"] and one["samples"] == both["samples"] == "40, 40"
    assert one["high"] - one["low"] < both["high"] - both["low"]
    assert one["halves"].startswith("–, ") and "–" not in both["halves"]
    assert rows([published(a), published(b)]) == []


def test_what_two_boards_gave_while_their_records_were_there_stays(tmp_path):
    means = np.linspace(0.1, 0.9, FEWEST)
    a, b, c = part("a", means), part("bb", means), part("ccc", means)
    before = rows([a, b])
    pd.DataFrame(before).to_csv(tmp_path / "order.csv", index=False)
    made = rows([published(a), published(b), c])
    kept = earlier(tmp_path / "order.csv", made)
    assert [(row["of"], row["correlation"]) for row in kept] == [(row["of"], row["correlation"]) for row in before]
    assert earlier(tmp_path / "order.csv", before) == [] == earlier(tmp_path / "missing.csv", made)
