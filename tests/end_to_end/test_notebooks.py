"""The notebooks run from top to bottom, and are kept without outputs."""

from collections.abc import Iterator

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Between two notebooks in one kernel: nothing is left of the first but what is imported.
RESET = "%matplotlib inline\n%reset -f\n%cd -q {}"


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[NotebookClient]:
    """A client whose kernel runs; it starts in seconds, most of which are imports of kvbench."""
    folder = tmp_path_factory.mktemp("kernel")
    client = NotebookClient(
        nbformat.v4.new_notebook(), timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    with client.setup_kernel():
        yield client


def test_the_three_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["analyse_results", "new_method", "quickstart"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path, client, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(RESET.format(tmp_path)))
    client.nb = notebook
    for number, cell in enumerate(notebook.cells):
        client.execute_cell(cell, number)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(output.get("data", {}).get("text/html") for output in outputs), "no table was shown"
    if path.stem != "new_method":
        assert any(output.get("data", {}).get("image/png") for output in outputs), "no picture was shown"
    if path.stem == "quickstart":  # kvbench.run's line, in its last state
        texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
        assert "9 of 9 records: 3 samples × 3 settings" in texts
