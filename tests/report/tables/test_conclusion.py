"""What a run shows, in one or two sentences."""

import pandas as pd
import pytest

from kvbench.metrics.bootstrap import Division
from kvbench.report.tables.conclusion import conclusion, more_units, split
from kvbench.report.tables.differences import pairs


def said(of: dict[str, list[float]], metric: str = "score", bytes_of=None, **columns) -> list[str]:
    """The sentences about settings whose samples have these scores; `columns` have a value per sample."""
    frame = pd.DataFrame(
        [
            {"setting": setting, "method": setting.split()[0], "sample": f"s{i}", "scores": {metric: value}}
            | {name: values[i] for name, values in columns.items()}
            for setting, values in of.items()
            for i, value in enumerate(values)
        ]
    )
    return conclusion(frame, pairs(frame, metric), metric, bytes_of)


ALL = [1.0] * 10
NONE = [0.0] * 10
MOST = [1.0] * 9 + [0.0]


def test_equal_scores_of_few_prompts_are_no_proof_and_the_prompts_that_are_are_counted():
    (sentence,) = said({"full": ALL, "snapkv 0.4": ALL})
    assert sentence == (
        "SnapKV at 0.4 cannot be distinguished from FullKV by score on these 10 prompts; about 60 more would show a "
        "difference of 0.05."
    )
    (sentence,) = said({"full": [1.0] * 80, "snapkv 0.4": [1.0] * 80})
    assert sentence.endswith("on these 80 prompts, which would show a difference of 0.05.")


def test_settings_that_differ_are_told_from_those_that_do_not():
    same, differ = said({"full": MOST, "snapkv 0.4": ALL, "h2o 0.2": NONE, "h2o 0.4": NONE, "streaming_llm 64": NONE})
    assert same.startswith("SnapKV at 0.4 cannot be distinguished")
    assert differ == "Worse than FullKV: H2O at 0.2 and 0.4, and StreamingLLM at 64."
    (better,) = said({"full": [*NONE[:-1], 1.0], "snapkv 0.4": ALL})
    assert better == "Better than FullKV: SnapKV at 0.4."


def test_the_need_is_that_of_the_widest_spread():
    frame = pd.DataFrame({"error": [0.0, 0.1], "units": [10, 10], "divided": [Division(10, (1.0,))] * 2})
    # 10 · (2.8 · 0.1 / 0.05)² = 314 units in all
    assert more_units(frame, "score") == (310, False)
    assert more_units(frame.assign(error=[0.0, float("nan")]), "score") == (60, True)


def test_one_prompt_tells_nothing():
    (sentence,) = said({"full": [1.0], "snapkv 0.4": [0.0]})
    assert sentence.startswith(
        "One prompt is too few to compare by score: FullKV 1.000, SnapKV at 0.4 0.000; at least 60 more"
    )


def test_few_prompts_are_too_few_to_compare_whatever_the_scores():
    few = {"full": [1.0] * 4, "snapkv 0.4": [0.5, 0.2, 1.0, 0.3], "h2o 0.2": [1.0] * 4}
    (sentence,) = said(few, unit=["a", "a", "b", "b"])
    assert sentence.startswith(
        "These 4 prompts about 2 texts are too few to compare by score: FullKV 1.000, SnapKV at 0.4 0.500, "
        "H2O at 0.2 1.000; "
    )
    assert "distinguished" not in sentence
    many = {"full": [1.0] * 5} | {f"h2o 0.{i}": [1.0] * 5 for i in range(1, 7)}
    assert "H2O at 0.4 1.000, 2 further settings; about" in said(many)[0]
    assert "cannot be distinguished" in said({"full": [1.0] * 6, "h2o 0.2": [1.0] * 6})[0]


def test_settings_over_different_numbers_of_prompts_say_so():
    (sentence,) = said({"full": ALL, "snapkv 0.4": ALL, "h2o 0.4": ALL[:2]})
    assert "cannot be distinguished from FullKV by score on 2 to 10 prompts; about 60 more" in sentence


def test_prompts_that_are_divided_between_tasks_take_more_of_them():
    assert "; about 60 more would" in said({"full": ALL, "snapkv 0.4": ALL}, task=["a"] * 10)[0]
    assert "; about 150 more would" in said({"full": ALL, "snapkv 0.4": ALL}, task=[*"aaaaaaaabb"])[0]


def test_prompts_about_one_text_count_once():
    (sentence,) = said({"full": ALL, "snapkv 0.4": ALL}, unit=[*"aabbccddef"])
    assert "on these 10 prompts about 6 texts; about 60 more texts would" in sentence


def test_the_smallest_settings_are_named_first_and_only_a_few_methods():
    names = ["snapkv 0.4", "snapkv 0.2", "h2o 0.1", "adakv 0.3", "tova 0.3", "knorm 0.3", "knorm 0.4"]
    sizes = dict(zip(names, [0.4, 0.2, 0.1, 0.3, 0.31, 0.32, 0.4], strict=True))
    (sentence,) = said({"full": ALL, **dict.fromkeys(names, ALL)}, bytes_of=sizes)
    assert sentence.startswith(
        "H2O at 0.1, SnapKV at 0.2 and 0.4, AdaKV at 0.3, TOVA at 0.3, and 2 further settings cannot be distinguished"
    )


def test_where_fullkv_is_known_by_definition_the_nearest_settings_are_told():
    near, far = [0.9, 0.8] * 5, [0.2, 0.1] * 5
    first, second = said({"full": ALL, "snapkv 0.4": near, "h2o 0.4": [0.9, 0.7] * 5, "h2o 0.1": far}, "top1")
    assert first == "By top1, SnapKV at 0.4 is nearest to FullKV: 0.850."
    assert second.startswith("H2O at 0.4 cannot be distinguished from it by top1 on these 10 prompts")
    first, *_ = said({"full": NONE, "snapkv 0.4": far, "h2o 0.4": near}, "kl")
    assert first == "By kl, SnapKV at 0.4 is nearest to FullKV: 0.150."


def test_without_fullkv_the_best_setting_is_named_and_a_single_setting_is_not():
    first, *_ = said({"h2o 0.4": NONE, "snapkv 0.4": ALL})
    assert first == "By score, SnapKV at 0.4 is the best: 1.000."
    assert said({"full": ALL}) == [] == said({"snapkv 0.4": ALL})
    assert said({"full": ALL, "snapkv 0.4": ALL}, "top1") == ["By top1, SnapKV at 0.4 is nearest to FullKV: 1.000."]


def test_settings_with_equal_means_are_the_best_alike():
    """Of two flags of an engine that answered alike, the first was called the best."""
    first, second = said({"h2o 0.4": NONE, "openai f16": MOST, "openai q8_0": MOST[::-1]})
    assert first == "By score, openai f16 and openai q8_0 are, alike, the best: 0.900."
    assert second.startswith("openai q8_0 cannot be distinguished from openai f16 by score on these 10 prompts; ")
    (first, _) = said({"full": ALL, "snapkv 0.4": MOST, "h2o 0.4": MOST}, "top1")
    assert first == "By top1, SnapKV at 0.4 and H2O at 0.4 are, alike, nearest to FullKV: 0.900."


def test_a_baseline_at_the_floor_is_what_is_said():
    (sentence,) = said({"full": NONE, "snapkv 0.4": NONE})
    assert "FullKV's own score is 0.000: no setting can be worse" in sentence


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("snapkv 0.4", ("SnapKV", "0.4")),
        ("snapkv 128", ("SnapKV", "128")),
        ("kivi", ("KIVI", "")),
        ("rkv 0.1 of total", ("R-KV", "0.1 of total")),
        ("snapkv 0.4 (scoring.window=8)", ("SnapKV (scoring.window=8)", "0.4")),
        ("llama_cpp q8_0/q8_0", ("llama_cpp q8_0/q8_0", "")),
    ],
)
def test_a_setting_is_a_method_at_an_amount(setting, parts):
    assert split(setting) == parts


def test_the_nearest_of_many_settings_is_compared_though_their_pairs_are_with_fullkv_alone():
    values = {"full": ALL, "snapkv 0.4": [0.9] * 9 + [0.8], "snapkv 0.2": [0.9] * 10, "h2o 0.2": [0.1, 0.2] * 5}
    frame = pd.DataFrame(
        [
            {"setting": setting, "method": setting.split()[0], "sample": f"s{i}", "scores": {"top1": value}}
            for setting, of in values.items()
            for i, value in enumerate(of)
        ]
    )
    every, alone = (conclusion(frame, pairs(frame, "top1", baseline), "top1") for baseline in (None, "full"))
    assert every == alone and every[0] == "By top1, SnapKV at 0.2 is nearest to FullKV: 0.900."
    assert every[1].startswith("SnapKV at 0.4 cannot be distinguished from it")


def test_the_best_setting_has_the_score_of_the_table_where_others_have_fewer_samples():
    values = {"snapkv 0.2": [1.0] * 5 + [0.2] * 5, "h2o 0.2": [0.3] * 10, "knorm 0.2": [0.4] * 5}
    first, _ = said(values)
    assert first == "By score, SnapKV at 0.2 is the best: 0.600."
    by_task = said(values, task=["a"] * 8 + ["b"] * 2)[0]
    assert by_task == "By score, SnapKV at 0.2 is the best: 0.450."  # (0.7 + 0.2) / 2
