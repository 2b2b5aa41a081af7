"""released_code_parity.py loads what it cannot import whole, and finds a difference where there is one."""

import json
import subprocess

import pytest
import torch

from scripts.compare.parity import clusters
from scripts.compare.parity.agreement import part
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import random_layer
from scripts.compare.released_code_parity import table
from tests.support.paths import ROOT

# A plain reading of SnapKV behind the interface of the released class; `shift` makes it wrong.
PLAIN = """
import a_package_that_is_missing
from a_package_that_is_missing.deep import decorate, Base
from transformers.utils import a_name_that_is_gone
from a_package_that_is_missing import *
import torch

logger = a_name_that_is_gone.get_logger(__name__)

@decorate("with arguments")
class Unused(Base):
    def method(self, x: StarName[int]) -> int: ...

def repeat_kv(x, groups):
    return x.repeat_interleave(groups, dim=1)

class SnapKVCluster:
    shift = {shift}

    def __init__(self, window_size, max_capacity_prompt, kernel_size, pooling):
        self.window, self.budget, self.kernel, self.pool = window_size, max_capacity_prompt, kernel_size, pooling

    def update_kv(self, keys, queries, values, mask, groups):
        n, w = keys.shape[2], self.window
        if n < self.budget:
            return keys, values
        logits = queries[:, :, -w:] @ keys.mT * keys.shape[3] ** -0.5
        logits = logits.masked_fill(torch.ones(w, n, dtype=torch.bool).triu(n - w + 1), float("-inf"))
        votes = logits.softmax(dim=-1).sum(dim=2)[:, :, : n - w]
        if self.shift:
            votes = votes.roll(self.shift, dims=-1)
        outside = float("-inf") if "max" in self.pool else 0
        padded = torch.nn.functional.pad(votes, [self.kernel // 2] * 2, value=outside)
        rows = padded.unfold(2, self.kernel, 1)
        scores = rows.amax(dim=-1) if "max" in self.pool else rows.mean(dim=-1)
        chosen = scores.topk(self.budget - w, dim=-1).indices[..., None].expand(-1, -1, -1, keys.shape[3])
        return [torch.cat([x[:, :, :-w].gather(2, chosen), x[:, :, -w:]], dim=2) for x in (keys, values)]
"""


@pytest.fixture
def checkout(tmp_path):
    def make(shift: int):
        (tmp_path / "released.py").write_text(PLAIN.format(shift=shift))
        return tmp_path

    return make


def rows_of(checkout, dtype=torch.float32) -> dict:
    version = clusters.Version(load(checkout, "released.py"), "causal", 0)
    rows: dict = {}
    for number, setting in enumerate(clusters.settings(version)):
        layer = random_layer(list(clusters.LAYOUTS)[number % 4], 120, dtype, seed=number)
        for budget in (64, 121):
            clusters.compare(version, setting, layer, budget, 0, 1, rows)
    return rows


def test_the_same_rule_agrees_up_to_ties(checkout):
    (row,) = rows_of(checkout(0)).values()
    assert row.compared == row.equal + row.ties + row.rounding > 0 and row.different == 0


def test_scores_of_sixteen_bits_are_counted_apart(checkout):
    (row,) = rows_of(checkout(0), torch.bfloat16).values()
    assert row.dtype_rounding > 0 and row.different == 0


def test_another_rule_is_found(checkout):
    (row,) = rows_of(checkout(1)).values()
    assert row.different > row.compared / 4 and row.examples and row.overlap < 1


@pytest.mark.parametrize(
    "scores, verdict",
    [
        ([3, 2, 2, 0], "ties"),
        ([3, 2, 2 * (1 + 1e-6), 0], "rounding"),
        ([3, 2, 2.1, 0], "different"),
    ],
)
def test_why_two_sets_part(scores, verdict):
    ours, theirs = torch.tensor([0, 1, 4]), torch.tensor([0, 2, 4])
    assert part(ours, theirs, torch.tensor(scores, dtype=torch.float32))[0] == verdict
    assert part(ours, ours, None) == ("equal", 0.0)
    assert part(ours, ours[:2], torch.tensor(scores))[0] == "different"


def test_the_commit_is_the_checkouts(checkout):
    folder = checkout(0)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one", "--date=2024-06-25T00:00:00"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
    assert commit(folder).startswith(head.stdout.strip())


def test_the_documentation_has_the_table_of_the_committed_result(capsys):
    result = json.loads((ROOT / "results/benchmarks/released_code_parity.json").read_text(encoding="utf-8"))
    table(result["rows"])
    documented = set((ROOT / "scripts/README.md").read_text(encoding="utf-8").splitlines())
    assert [line for line in capsys.readouterr().out.splitlines() if line and line not in documented] == []
