"""The titles of runs: what distinguishes one from the others on the page."""

import pytest

from kvbench.configuration import configured
from kvbench.records.pack import LEFT_OUT
from kvbench.report.page.page import titles
from kvbench.report.page.run_data import read_run
from kvbench.report.page.speed_data import read_speed
from tests.support.report_run import manifest, record, speed_record, write_run

FACTS = {"benchmark": "niah", "model": "a", "dtype": "float32", "question": "visible", "memory": "shared"}


@pytest.mark.parametrize(
    ("differences", "made"),
    [
        ([{}], ["run 0"]),
        ([{}, {}], ["run 0", "run 1"]),
        ([{}, {"question": "hidden"}], ["question visible", "question hidden"]),
        ([{}, {"model": "b"}], ["a", "b"]),
        ([{}, {"model": "b", "question": "hidden"}], ["a · question visible", "b · question hidden"]),
        ([{}, {"model": "b"}, {"model": "b"}], ["a", "b · run 1", "b · run 2"]),
    ],
)
def test_a_title_has_what_differs_and_the_folder_where_nothing_else_does(differences, made):
    runs = [{"name": f"run {i}", "facts": FACTS | difference} for i, difference in enumerate(differences)]
    assert titles(runs) == made


def test_facts_are_those_of_the_records_and_manifests(tmp_path):
    rows = [record("s", "full", 1.0, question="hidden", memory="stream")]
    made, _ = read_run(write_run(tmp_path / "run", rows, manifests=[manifest(dtype="torch.bfloat16")]))
    assert made["facts"] == {
        **{"benchmark": "made_up", "model": "tiny", "dtype": "bfloat16", "question": "hidden", "memory": "stream"}
    }


def plain(*overrides: str) -> dict:
    return configured(["method=full", *overrides]).plain


def test_runs_of_one_preset_have_the_folders_of_their_weights(tmp_path):
    runs = []
    for path, source in ((None, "SmolLM2"), ("/models/tuned", "tuned"), (LEFT_OUT, "mine")):
        config = plain()
        config["model"]["path"] = path
        of_run = manifest(config=config, model={"source": source, "files": {}})
        runs.append(read_run(write_run(tmp_path / source, [record("s", "full", 1.0)], manifests=[of_run]))[0])
    speed = read_speed(write_run(tmp_path / "speed", [speed_record("full", 10.0)], manifests=[of_run]))
    assert speed["tables"][0]["caption"].startswith("speed · tiny from mine (float32)")
    assert titles(runs) == ["tiny", "tiny from tuned", "tiny from mine"]
    assert "tiny from tuned (float32)" in runs[1]["caption"]


def test_a_folder_without_a_preset_is_named_once(tmp_path):
    config = plain("model=/models/tiny")
    of_run = manifest(config=config, model={"source": "tiny", "files": {}})
    assert read_run(write_run(tmp_path, [record("s", "full", 1.0)], manifests=[of_run]))[0]["facts"]["model"] == "tiny"
