"""Published times and memory beside a run's."""

import pytest

from kvbench.configuration import Experiment
from kvbench.papers.comparison import compare_speed
from kvbench.papers.experiment import load
from kvbench.report.tables.speed_table import published_table, speeds
from tests.support.speed_runs import frame_of


def experiment(name: str) -> Experiment:
    return load(name).experiment


def test_published_times_stand_beside_ours_of_the_same_place():
    ours = frame_of(
        {"method": "pyramidkv_paper_h2o", "latency_seconds": 10.0},
        {"method": "pyramidkv_paper_snapkv", "latency_seconds": 9.0},
        {"method": "pyramidkv_paper", "latency_seconds": 9.5, "new_tokens": 1024},
        {"method": "pyramidkv_paper", "latency_seconds": 9.5, "length": 513},
    )
    compared, used = compare_speed(speeds(ours), experiment("pyramidkv_table7"), "llama3-8b-random")
    assert compared[["published", "ours"]].values.tolist() == [[18.47, 10.0], [18.25, 9.0], [34.69, 9.5]]
    assert compared["ours_over_first"].tolist() == [1.0, 0.9, 1.0]
    assert set(used["model"]) == {"llama3-8b"}


@pytest.mark.parametrize("other", [{"batch": 8}, {"machine": "another"}, {"decode_engine": "graph"}], ids=str)
def test_times_are_divided_by_those_of_the_same_batch_machine_and_engine(other):
    ours = frame_of(
        *({"method": name, "machine": "one", **where, "latency_seconds": seconds}
          for where, seconds_of in (({}, (10.0, 9.0)), (other, (40.0, 20.0)))
          for name, seconds in zip(("pyramidkv_paper_h2o", "pyramidkv_paper_snapkv"), seconds_of, strict=True)),
    )  # fmt: skip
    paper = experiment("pyramidkv_table7")
    compared, used = compare_speed(speeds(ours), paper, "llama3-8b")
    assert sorted(zip(compared["ours"], compared["ours_over_first"], strict=True)) == [
        (9.0, 0.9),
        (10.0, 1.0),
        (20.0, 0.5),
        (40.0, 1.0),
    ]
    (name,) = other
    assert name.removeprefix("decode_") in published_table(compared, used, paper).header


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_nothing_is_over_a_first_setting_that_does_not_fit(engine):
    ours = frame_of(
        {"method": "full", "budget": None, "fits": False, "decode_tokens_per_s": float("nan"), "decode_engine": None},
        {
            "method": "spindlekv_paper",
            "budget": None,
            "ratio": 0.4,
            "decode_tokens_per_s": 15.0,
            "decode_engine": engine,
        },
    )
    compared, _ = compare_speed(speeds(ours), experiment("spindlekv_table9"), "mistral-7b-v0.2")
    assert compared["published_over_first"].tolist() == pytest.approx([1.0, 18.47 / 22.48])
    assert compared["ours_over_first"].isna().all()


def test_allocation_and_selection_stand_beside_table_6():
    compared, _ = compare_speed(
        speeds(frame_of({"method": "full"}, {"method": "pyramidkv_paper"})), experiment("pyramidkv_table6"), "llama3-8b"
    )
    assert dict(zip(compared["column"], compared["published"], strict=True)) == {
        "latency_s": 18.26,
        "allocation_s": 0.000003,
        "selection_s": 0.0194,
    }
    assert compared["ours"].tolist() == [20.0, 1e-5, 0.1]


def test_memory_stands_beside_table_2_by_budget():
    ours = frame_of({"method": "pyramidkv_paper", "budget": 64}, {"method": "full", "budget": None, "r": 1.0})
    compared, _ = compare_speed(speeds(ours), experiment("pyramidkv_memory"), "llama3-8b")
    memory = compared[compared["column"] == "memory_mb"]
    assert memory[["published", "ours"]].values.tolist() == [[53, 53], [6848, 53]]
    assert set(compared.loc[compared["column"] == "kv_share", "ours"]) == {50, 100}


def test_throughput_is_compared_at_the_largest_batch_only():
    ours = frame_of(
        *({"method": name, "length": 4096, "batch": batch, "decode_tokens_per_s": speed}
          for batch in (1, "largest") for name, speed in (("full", 10.0), ("simlayerkv_paper", 15.0))),
    )  # fmt: skip
    compared, _ = compare_speed(speeds(ours), experiment("simlayerkv_throughput"), "llama3-8b")
    assert compared[["published", "ours"]].values.tolist() == [[1.44, 1.5]]


def test_spindlekvs_speed_is_compared_with_fullkv_for_each_model():
    ours = frame_of(
        {"method": "full", "budget": None, "decode_tokens_per_s": 20.0},
        {"method": "spindlekv_paper", "budget": None, "ratio": 0.4, "decode_tokens_per_s": 15.0},
    )
    compared, used = compare_speed(speeds(ours), experiment("spindlekv_table9"), "mistral-7b-v0.2")
    assert compared["published"].tolist() == [22.48, 18.47]
    assert compared["ours_over_first"].tolist() == [1.0, 0.75]
    assert set(used["model"]) == {"mistral-7b-v0.2"}
