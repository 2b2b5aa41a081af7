"""Calibration files: three forms, checked against the model, hashed into the record's key."""

import json

import pytest

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import AdaKV, Eviction, HeadKV
from kvbench.methods.heads.head_scores import calibrations, read_head_scores
from kvbench.models import model_spec
from kvbench.runner.request import check_calibrations
from tests.support.config import SCORES, method_configs
from tests.support.tiny import random_state

ROWS = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]


def written(folder, name="scores.json", text=None, **fields):
    contents = {"kind": "head scores", "over": "query_heads", "scores": ROWS, "model": "tiny", "about": "x"} | fields
    (folder / name).write_text(json.dumps(contents) if text is None else text, encoding="utf-8")
    return str(folder / name)


def layer(heads=4, kv_heads=2, layers=2):
    return random_state(layers, heads=heads, kv_heads=kv_heads).layers[0]


def test_the_forms_of_a_file(tmp_path):
    own = read_head_scores(written(tmp_path))
    assert own.of_heads(4, layer()) == ROWS and own.model == "tiny"
    assert own.of_heads(2, layer())[1] == pytest.approx([0.55, 0.75]), "a KV head has the mean of its query heads"
    released = {f"{at}-{head}": [x - 0.05, x + 0.05] for at, row in enumerate(ROWS) for head, x in enumerate(row)}
    headkv = read_head_scores(written(tmp_path, "headkv.json", json.dumps(released)))
    assert headkv.of_heads(4, layer())[0] == pytest.approx(ROWS[0]) and headkv.over == "query_heads"
    (tmp_path / "config.json").write_text('{"model_name": "models/Some-7B", "sink_size": 128}')
    gates = read_head_scores(written(tmp_path, "full_attention_heads.tsv", "1e0\t-2.5e-4\n5e-1\t0\n"))
    assert gates.scores == ((1.0, -2.5e-4), (0.5, 0.0)) and gates.over == "kv_heads" and "Some-7B" in gates.about


def test_a_file_of_another_model_is_refused(tmp_path):
    file = read_head_scores(written(tmp_path))
    with pytest.raises(
        UserError, match="2 layers of 4 query heads, but this model has 3 of 4: it was made for another"
    ):
        file.of_heads(4, layer(layers=3))
    gates = read_head_scores(written(tmp_path, over="kv_heads", scores=[[1, 0], [0, 1]]))
    with pytest.raises(UserError, match="has scores of KV heads: granularity=query_head needs scores of query heads"):
        gates.of_heads(4, layer())
    name = model_spec({"name": "other", "hub_id": "a/b", "max_length": 10})
    settings = build_settings({"mine": settings_of(written(tmp_path))}, 0.5, None)
    assert [one.path for one in calibrations(settings[0].method)] == [str(tmp_path / "scores.json")]
    with pytest.raises(UserError, match=r"scores.json was made for model 'tiny', not for 'other'"):
        check_calibrations(settings, name)
    check_calibrations(build_settings(method_configs("headkv", "snapkv"), 0.5, None), name)


def settings_of(file: str) -> dict:
    return {
        "_target_": "kvbench.methods.Eviction",
        "heads": {"_target_": "kvbench.methods.HeadKV", "scores_file": file},
    }


def test_what_a_file_says_is_in_the_records_key_and_not_where_it_lies(tmp_path):
    (tmp_path / "there").mkdir()
    files = [written(tmp_path), written(tmp_path / "there"), written(tmp_path, "b.json", scores=[[1, 2], [3, 4]])]
    keys = [build_settings({"mine": settings_of(file)}, 0.5, None)[0].key for file in files]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", '{"0-0": []}', '{"0-1": [1]}', '{"kind": "head scores", "scores": [[1]]}']
    + [json.dumps({"kind": "head scores", "over": over, "scores": rows, "model": "", "about": ""})
       for over, rows in (("heads", [[1]]), ("kv_heads", []), ("kv_heads", [[1], [1, 2]]), ("kv_heads", [["1"]]))],
)  # fmt: skip
def test_a_damaged_file_is_one_line(tmp_path, text):
    with pytest.raises(UserError, match="not a readable calibration file") as error:
        read_head_scores(written(tmp_path, text=text))
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="not a readable calibration file"):
        read_head_scores(str(tmp_path / "none.json"))


def test_methods_without_a_file_have_none():
    assert not list(calibrations(Eviction(heads=AdaKV()))) and len(list(calibrations(HeadKV(SCORES)))) == 1
