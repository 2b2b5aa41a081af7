"""The notebooks run from top to bottom, and are kept without outputs."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_three_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["analyse_results", "new_method", "quickstart"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(output.get("data", {}).get("text/html") for output in outputs), "no table was shown"
    if path.stem != "new_method":
        assert any(output.get("data", {}).get("image/png") for output in outputs), "no picture was shown"
