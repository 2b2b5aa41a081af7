"""The titles of runs: what distinguishes one from the others on the page."""

import pytest

from kvbench.report.page.page import titles
from kvbench.report.page.run_data import read_run
from tests.support.report_run import manifest, record, write_run

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
