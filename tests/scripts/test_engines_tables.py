"""Tables of engines: what is compared with what, and intervals over what was drawn independently."""

import math

import pandas as pd
import pytest

from scripts.results.engines_tables import agreed, agreement, between, distances, formats, texts

LIKELY = [{"token_id:1": -0.1}, {"token_id:2": -0.2}]
OTHER = [{"token_id:1": -0.3}, {"token_id:2": -0.2}]


def row(sample: int, setting: str, tokens=(1, 2), distance=None, top=None) -> dict:
    scores = {"exact": float(tuple(tokens) == (1, 2))}
    made = {"sample": f"s{sample}", "unit": f"u{sample}", "setting": setting, "tokens": list(tokens), "scores": scores}
    return {**made, "distance": distance, "top": top}


@pytest.fixture
def records() -> pd.DataFrame:
    """Four samples; llama.cpp differs from FullKV on the last one, and its q8_0 is further off than kvbench's."""
    rows = []
    for sample in range(4):
        off = sample == 3
        rows += [
            row(sample, "full", distance={"top1": 1.0, "agreed": 1.0, "kl": 0.0}),
            row(sample, "ggml_q8_0", distance={"top1": 1.0, "agreed": 1.0, "kl": 0.01 * sample}),
            row(sample, "llama_cpp f16/f16", (1, 5) if off else (1, 2), {"top1": 1.0, "kl_at_least": 0.0}, LIKELY),
            row(sample, "llama_cpp q8_0/q8_0", distance={"top1": 0.5, "agreed": 0.5, "kl_at_least": 0.1 * sample}),
            row(sample, "vllm auto", top=OTHER),
        ]
    return pd.DataFrame(rows)


def test_answers_are_compared_with_fullkvs(records):
    table = agreement(records).set_index("setting")
    assert table["equal"].to_dict() == {
        **{"full": 1, "ggml_q8_0": 1, "llama_cpp f16/f16": 0.75, "llama_cpp q8_0/q8_0": 1, "vllm auto": 1}
    }
    one = table.loc["llama_cpp f16/f16"]
    assert one["exact"] == 0.75 and 0 <= one["equal_low"] < 0.75 < one["equal_high"] <= 1
    assert table.loc["full", "equal_low"] < 1  # four samples do not show that all answers are equal


def test_engines_are_compared_with_each_other_and_diverge_only_along_equal_answers(records):
    table = between(records).set_index(["a", "b"])
    assert len(table) == 3
    assert table.loc[("full", "vllm auto"), "equal"] == 1 and math.isnan(
        table.loc[("full", "vllm auto"), "kl_at_least"]
    )
    both = table.loc[("llama_cpp f16/f16", "vllm auto")]
    assert (both["equal"], both["agreed"], both["samples"]) == (0.75, 0.875, 4) and 0 < both["kl_at_least"] < 0.1


def test_first_settings_have_no_distance_from_themselves(records):
    assert distances(records)["setting"].tolist() == ["ggml_q8_0", "llama_cpp q8_0/q8_0"]


def test_a_format_stands_beside_the_engines(records):
    (one,) = formats(records).to_dict("records")
    assert (one["kvbench"], one["engine"], one["samples"]) == ("ggml_q8_0", "llama_cpp q8_0/q8_0", 4)
    assert one["difference"] == 0.5 and one["difference_low"] < 0.5 < one["difference_high"]
    assert math.isclose(one["kvbench_kl"], 0.015) and math.isclose(one["engine_kl_at_least"], 0.15)


@pytest.mark.parametrize("a, b, share", [([1, 2], [1, 2], 1), ([1, 2], [1], 0.5), ([3], [1], 0), ([], [], 1)])
def test_a_share_of_the_longer_answer_agrees(a, b, share):
    assert agreed(a, b) == share


def scored(sample: int, setting: str, nll: float) -> dict:
    return {**row(sample, setting, (), {"nll": nll}), "scores": {}}


def test_perplexities_are_compared_over_the_same_windows_with_the_engines_own_and_with_fullkv():
    rows = []
    for sample in range(4):
        nll = 2.0 + sample  # windows differ by far more than settings
        shifts = {"full": 0, "ggml_q8_0": 0.01, "llama_cpp f16/f16": 0.1, "llama_cpp q4_0/q4_0": 0.3}
        shifts["llama_cpp q4_0/q4_0"] += 0.002 * (sample % 2) - 0.001
        rows += [scored(sample, setting, nll + shift) for setting, shift in shifts.items()]
    table = texts(pd.DataFrame(rows)).set_index("setting")
    q4 = table.loc["llama_cpp q4_0/q4_0"]
    assert q4["from_own"] == pytest.approx(0.2) and q4["from_own_low"] > 0.19 and q4["from_own_high"] < 0.21
    assert q4["from_full"] == pytest.approx(0.3) and q4["perplexity"] == pytest.approx(math.exp(3.8))
    assert q4["nll_high"] > 4 and table.loc["full", "from_own"] == 0
    assert table.loc["ggml_q8_0", "from_own"] == table.loc["ggml_q8_0", "from_full"] == pytest.approx(0.01)


def test_the_score_of_a_benchmark_without_an_exact_one_is_its_first(records):
    other = records.assign(scores=[{"score": 0.25, "more": 1.0}] * len(records))
    assert agreement(other)["score"].eq(0.25).all() and "exact" not in agreement(other)
