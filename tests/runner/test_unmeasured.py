"""Records without the distances that a run measures."""

import json
from types import SimpleNamespace

import pytest

from kvbench.runner.unmeasured import warn_of_unmeasured
from tests.support.paths import ROOT

MANIFEST = json.loads((ROOT / "results" / "smollm2" / "demo" / "manifest.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "earlier, metrics, measures, warned",
    [
        ("auto", ("score",), True, True),
        (False, ("score",), True, True),
        (True, ("score",), True, False),
        ("auto", (), True, False),  # without expected answers auto measures
        ("auto", ("score",), False, False),
    ],
)
def test_a_run_that_measures_says_that_records_of_an_earlier_one_stay_without(
    earlier, metrics, measures, warned, tmp_path, capsys
):
    (tmp_path / "manifests").mkdir()
    manifest = MANIFEST | {"config": MANIFEST["config"] | {"distance": earlier}}
    (tmp_path / "manifests" / "1.json").write_text(json.dumps(manifest), encoding="utf-8")
    warn_of_unmeasured(SimpleNamespace(distance=measures, benchmark=SimpleNamespace(metrics=metrics)), tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    line = "records of this folder were made without distance=true and stay so: another output_dir measures them"
    assert said == (line if warned else "")
