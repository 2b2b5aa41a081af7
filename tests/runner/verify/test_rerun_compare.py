"""A record beside the one made again: which differences rounding explains."""

import copy

import pytest

from kvbench.runner.verify.rerun_compare import apart, differing, judge, unlike

HERE = {
    "compress_at": "prefill_end",
    "tokens": [5, 6, 7, 8],
    "prediction": "5678",
    "scores": {"exact": 1.0},
    "prompt_tokens": 100,
    "stored_bytes": 20_000,
    "kept_per_layer": [20.0, 20.0],
    "kept_positions": ["aZ", "bZ"],
    "decode_steps": 4,
    "close_call": None,
    "prefill_seconds": 1.0,
}


def changed(**fields):
    return copy.deepcopy(HERE) | fields


def test_times_and_what_rounding_could_change_there_are_not_compared():
    assert not differing(changed(prefill_seconds=9.0, close_call=0), HERE)


@pytest.mark.parametrize("tokens", [[5, 9, 7, 8], [5], [5, 6, 7, 8, 9], []])
def test_other_tokens_are_wrong_unless_some_rounding_here_gives_others_too(tokens):
    record = changed(tokens=tokens, prediction="?", scores={"exact": 0.0}, decode_steps=len(tokens))
    assert len(judge(record, HERE, [HERE, HERE]).wrong) == 1
    unstable = judge(record, HERE, [HERE, changed(tokens=[5, 6, 7, 1])])
    assert not unstable.wrong and len(unstable.open) == 1


def test_a_close_call_excuses_tokens_from_there_on_if_it_is_one_here():
    record = changed(tokens=[5, 9, 7, 8])
    assert judge(record, changed(close_call=1), []).open
    assert judge(record, changed(close_call=2), []).wrong
    assert judge(changed(tokens=[5, 9, 7, 8], close_call=0), HERE, []).wrong  # the record's word counts for nothing


def test_a_smaller_peak_can_be_one_of_earlier_commits_and_a_larger_one_cannot():
    here = changed(peak_cache_bytes=3000, r_peak=1.5)
    smaller = judge(changed(peak_cache_bytes=2000, r_peak=1.0), here, [])
    assert len(smaller.open) == 2 and not smaller.wrong
    assert len(judge(changed(peak_cache_bytes=4000, r_peak=2.0), here, []).wrong) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_tokens": 90},
        {"stored_bytes": 19_999},
        {"kept_per_layer": [20.0, 19.0]},
        {"kept_per_layer": [20.0]},
        {"scores": {"exact": 0.5}},
        {"scores": {"better": 1.0}},
        {"prediction": "5679"},
        {"kept_positions": ["aZ", "cZ"]},
    ],
)
def test_a_field_is_wrong_where_no_rounding_changes_it(fields):
    assert differing(changed(**fields), HERE) == {*fields}
    assert judge(changed(**fields), HERE, [HERE]).wrong


def test_a_number_may_be_off_by_a_few_times_what_rounding_changes_here_and_not_by_more():
    others = [changed(stored_bytes=20_100)]
    assert judge(changed(stored_bytes=19_700), HERE, others).open
    assert judge(changed(stored_bytes=15_000), HERE, others).wrong


def test_bytes_of_a_prompt_that_answers_change_are_open_where_tokens_are():
    others = [changed(tokens=[1])]
    record = changed(tokens=[2], stored_bytes=9, compress_at="while_decoding")
    assert not judge(record, HERE, others).wrong
    assert judge(record | {"compress_at": "prefill_end"}, HERE, others).wrong


def test_fields_that_one_record_lacks_are_named():
    record = {name: value for name, value in HERE.items() if name not in ("kept_positions", "stored_bytes")}
    assert [*unlike(record | {"r_full": 0.1}, HERE, packed=True)] == [
        "it has no stored_bytes, which kvbench records",
        "it has r_full, which is not recorded here",
    ]
    assert "it has no kept_positions, which kvbench records" in unlike(record, HERE, packed=False)


def test_the_distance_of_values():
    assert apart([1, {"a": 2.0}], [1, {"a": 2.0}]) == 0
    assert apart(200, 100) == 0.5 and apart(0.2, 0.1) == pytest.approx(0.1)
    assert apart(None, 1) == apart([1], [1, 2]) == apart({"a": 1}, {"b": 1}) == apart("a", "b") == float("inf")
    assert apart(True, 1.0) == 0.0 and apart(None, None) == 0
