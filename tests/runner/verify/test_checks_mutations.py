"""Whatever a field is changed to, a verdict becomes worse: no field turns a check off unseen, and none ends verify."""

import copy
from pathlib import Path

import pytest

from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support.forged import Forged
from tests.support.mutations import DELETED, mutations, seal
from tests.support.runs import run

pytestmark = pytest.mark.heavy
RANK = {verdict: number for number, verdict in enumerate(Verdict)}

# Fields that nothing in a folder contradicts, and why.
UNCHECKED = {
    "record.key": "made again by the forger, as all are here",
    "record.checksum": "the same",
    "record.kind": "follows from the other fields where it is missing",
    "record.kept_positions": "left out of packs",
    "record.peak_cache_bytes": "what a batch held beside the caches that are recorded; only its lower bound is known",
    "record.peak_device_bytes": "what a GPU's allocator held",
    "record.close_cuts": "scores are not in a record",
    "record.decode_batch": "how answers were computed",
    "manifest.number": "an order of runs",
    "manifest.host": "left out of packs",
    "manifest.pid": "left out of packs",
    "manifest.slurm": "left out of packs",
    "manifest.command": "left out of packs",
    "manifest.python": "versions and machines are what the run says of itself",
    "manifest.packages": "the same",
    "manifest.variables": "the same",
    "manifest.hardware": "the same",
    "manifest.kernels": "the same",
    "manifest.sdpa": "the same",
    "manifest.sdpa_decode": "the same",
    "manifest.git": "the same",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A run of a model that kvbench ships, of which everything can be compared."""
    grid = ["benchmark.lengths=[330]", "benchmark.depths=[0,100]", "benchmark.max_new_tokens=6"]
    return run(*grid, "method=[full,snapkv]", "ratio=0.2", f"output_dir={tmp_path_factory.mktemp('sound')}")


def test_no_field_turns_a_check_off_unseen(sound, tmp_path):
    forged = Forged(sound, tmp_path / "run", None)
    forged.manifest["git"] = "ab" * 20  # whatever the checkout of these tests is
    whole = {check.name: RANK[check.verdict] for check in verify(forged.seal())}
    assert max(whole.values()) == RANK[Verdict.PLAUSIBLE]
    unseen = []
    for mutation in list(mutations(*copy.deepcopy((forged.records[-1], forged.manifest)))):
        field = f"{mutation.where}.{mutation.path[0]}"
        inside = len(mutation.path) > 1 and not (field == "manifest.config" and mutation.value is DELETED)
        if inside or len(mutation.path) > 2 or field in UNCHECKED or mutation.value not in (DELETED, "unknown"):
            continue
        if mutation.path == ("run",) and mutation.where == "manifest" and mutation.value is DELETED:
            continue  # its file cannot be named
        seal(forged, lambda one=mutation: one.apply(forged, None))
        found = {check.name: RANK[check.verdict] for check in verify(forged.folder)}
        if not any(rank > whole.get(name, -1) for name, rank in found.items()):
            unseen.append(mutation.name)
    assert not unseen
