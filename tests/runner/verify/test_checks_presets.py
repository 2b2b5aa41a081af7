"""An honest folder with every preset: no check finds anything wrong in it."""

import pytest

from kvbench.methods.heads.head_scores import calibrations
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.fixtures import saved_tiny
from tests.support.representatives import REPRESENTATIVES
from tests.support.runs import run

# Without those that read a calibration file, which is of one model.
HERE = [name for name in REPRESENTATIVES if not list(calibrations(setting(name).method))]


@pytest.mark.heavy
def test_nothing_is_wrong_with_any_preset(embedded, tmp_path):
    folder = saved_tiny(embedded, tmp_path / "tiny", num_layers=LAYERS, head_dim=HEAD_DIM)
    model = (f"model.path={folder}", "model.shape=null", "model.max_length=4096", f"output_dir={tmp_path / 'runs'}")
    sample = ("benchmark=niah", "benchmark.lengths=[520]", "benchmark.depths=[50]", "benchmark.max_new_tokens=4")
    checks = verify(run(*model, *sample, f"method=[{','.join(HERE)}]", "ratio=0.3"))
    assert [note for check in checks if check.verdict is Verdict.WRONG for note in check.notes] == []
