"""`kvbench.run`: the records of the command line from keywords, in a frame of what was requested."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench.configuration.conf import composed
from kvbench.errors import UserError
from kvbench.records import load
from kvbench.runner.python_api import overrides_of, with_scores
from kvbench.utils.override_text import override_text

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-(10**6), 10**6), lambda inner: st.lists(inner, max_size=3)
)


@given(VALUES)
def test_hydra_reads_every_value_back(value):
    assert OverridesParser.create().parse_override(f"key={override_text(value)}").value() == value


@pytest.mark.parametrize(
    "keywords, overrides",
    [
        ({"method": "snapkv", "ratio": 0.2}, ["method=snapkv", "ratio=0.2"]),
        ({"method": ["full", "h2o"], "budget": (64, 128)}, ["method=[full,h2o]", "budget=[64,128]"]),
        ({"benchmark": {"niah": {"lengths": range(400, 900, 400)}}}, ["benchmark=niah", "benchmark.lengths=[400,800]"]),
        ({"method": {"snapkv": {"scoring": {"window": 8}}, "full": {}}}, [
            *("method=[snapkv,full]", "method.snapkv.scoring.window=8"),
        ]),
        ({"decode": {"batch": 1}, "limit": np.int64(3)}, ["decode.batch=1", "limit=3"]),
        ({"benchmark.depths": [0, 50], "experiment": "pyramidkv_table1"}, [
            *("+experiment=pyramidkv_table1", "benchmark.depths=[0,50]"),
        ]),
        ({"model": "org/name", "wandb": {"project": "a, b"}}, ["model=org/name", "wandb.project='a, b'"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else " ".join(value),
)  # fmt: skip
def test_keywords_are_overrides(keywords, overrides):
    assert overrides_of(keywords) == overrides
    if keywords.get("experiment") is None:
        composed(overrides)


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"method": "snapkw"}, "unknown method 'snapkw'. Did you mean 'snapkv'?"),
        ({"method": {"snapkw": {}}}, "unknown method 'snapkw'. Did you mean 'snapkv'?"),
        ({"benchmark": {"lengths": [400]}}, "unknown benchmark 'lengths'"),
        ({"benchmark": ["niah", "ruler"]}, "benchmark=['niah', 'ruler'] must be a name"),
        ({"method": 3}, "method=3 must be a name or a list of names"),
        ({"method": {"snapkv": 3}}, "method={'snapkv': 3}: the keys of 'snapkv' must be a mapping"),
        ({"benchmark": {"niah": {}, "ruler": {}}}, "must have one name"),
        ({"limitt": 3}, "limitt"),
        ({"ratio": 1.5}, "1.5"),
        ({"ratio": object}, "ratio=<class 'object'> must be a text, a number"),
        ({"question": "shown"}, "unknown question 'shown'"),
        ({"overrides": "limit=3"}, "overrides='limit=3' must be a list of KEY=VALUE texts"),
        ({"overrides": ["limit="]}, "limit"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(keywords, message, tmp_path):
    with pytest.raises(UserError) as error:
        kvbench.run(output_dir=tmp_path, **keywords)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_torchrun_is_for_the_command_line(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    with pytest.raises(UserError, match="torchrun runs the command line"):
        kvbench.run()


def test_scores_and_distances_are_columns_and_the_first_metric_is_the_score():
    frame = pd.DataFrame(
        {
            "scores": [{"digits": 0.5, "exact": 0.0}] * 2,
            "distance": [{"top1": 0.9, "kl": 0.1}, None],
            "kl": ["own", "own"],  # a property of the samples, from a row's meta
            "line": ["a", "b"],
        }
    )
    found = with_scores(frame, ("digits", "exact"))
    assert found[["score", "digits", "exact"]].to_numpy().tolist() == [[0.5, 0.5, 0.0]] * 2
    assert found["top1"].tolist()[0] == 0.9 and np.isnan(found["top1"][1])
    assert found["kl"].tolist()[0] == 0.1 and found["scores"].tolist() == frame["scores"].tolist()
    clashing = frame.assign(scores=[{"line": 1.0}] * 2)  # a metric with the name of a column of every record
    assert with_scores(clashing, ("line",), {"line"})["line"].tolist() == ["a", "b"]
    unscored = frame.assign(scores=[{}, {}])
    assert with_scores(unscored)["score"].tolist()[0] == 0.9
    named = frame.assign(scores=[{"rouge1": 1.0, "score": 0.0}] * 2)  # a metric of this name keeps it
    assert with_scores(named, ("rouge1", "score"))["score"].tolist() == [0.0, 0.0]
    assert "score" not in with_scores(frame.drop(columns="scores"))
    graded = frame.assign(score=[7, 9])  # a property of the samples, from a row's meta
    assert with_scores(graded, ("digits", "exact"))["score"].tolist() == [0.5, 0.5]


def test_records_can_be_loaded_after_import_kvbench_alone(monkeypatch):
    """The guides write kvbench.records.load(folder)."""
    monkeypatch.delattr(kvbench, "records", raising=False)  # which the import above has set
    assert kvbench.records.load is load


@pytest.mark.heavy
def test_a_run_gives_the_requested_records_and_continues_its_folder(tiny_folder, tmp_path, capsys):
    same = {
        "model": {"smollm2-135m": {"path": tiny_folder, "shape": None, "max_length": 4096}},
        "benchmark": {"niah": {"lengths": [330], "depths": [0, 50, 100], "max_new_tokens": 6}},
        "output_dir": tmp_path / "runs",
    }
    first = kvbench.run(method=["full", "snapkv"], ratio=[0.2, 0.5], **same)
    assert list(first["setting"].unique()) == ["full", "snapkv 0.2", "snapkv 0.5"] and len(first) == 9
    more = kvbench.run(method=["full", "streaming_llm"], ratio=0.2, limit=2, **same)
    assert more.groupby("setting").size().to_dict() == {"full": 2, "streaming_llm 0.2": 2}
    (folder,) = map(Path, {*first["folder"], *more["folder"]})
    assert (folder / "table.md").is_file()
    assert len(load(folder)) == 11  # FullKV was not computed again
    printed = capsys.readouterr()
    assert printed.out == "" and "2 of 4 records already exist" in printed.err
    assert more.index.tolist() == [0, 1, 2, 3] and more["score"].equals(more["digits"].rename("score"))
    assert [{"digits": a, "exact": b} for a, b in zip(more["digits"], more["exact"], strict=True)] == [*more["scores"]]
