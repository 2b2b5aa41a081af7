"""The noise with which `--rerun` tells rounding from forgery."""

import json

import pytest
import torch

from kvbench.runner.verify.rerun_answers import NOISE, noise
from tests.support.paths import ROOT

MEASURED = json.loads((ROOT / "results/benchmarks/rerun_rounding.json").read_text(encoding="utf-8"))["found"]


@pytest.mark.parametrize("dtype", MEASURED)
def test_noise_changes_keys_and_logits_more_than_other_kernels_do(dtype):
    found = MEASURED[dtype]
    assert found["noise"] == NOISE[getattr(torch, dtype)]
    for change in found["by_noise"]:
        assert all(change[name] > 1.5 * found["other_kernels"][name] for name in ("keys", "logits"))


def test_noise_is_drawn_from_its_seed_and_ends_with_its_block(embedded):
    ids = torch.arange(4)[None]
    read = embedded.model.get_input_embeddings()
    before = read(ids)
    disturbed = []
    for seed in (0, 0, 1):
        with noise(embedded, seed):
            disturbed.append(read(ids))
    assert torch.equal(disturbed[0], disturbed[1]) and not torch.equal(disturbed[0], disturbed[2])
    assert not torch.equal(disturbed[0], before) and torch.allclose(disturbed[0], before, rtol=1e-3)
    assert torch.equal(read(ids), before)
