"""Keys against what they are the hashes of."""

from types import SimpleNamespace

import pytest

from kvbench.records.identity import identity_of, setting_hash, setting_key
from kvbench.records.pack import without_places
from kvbench.runner.verify.check_runs import keys_fit
from kvbench.runner.verify.verdict import Verdict
from kvbench.utils.hashing import digest


def folder(corpus: str, packed: bool) -> SimpleNamespace:
    """A folder with one record of a benchmark whose key `corpus` names a place by none of the names for places."""
    manifest = {"run": "1", "benchmark": {"_target_": "mine.Mine", "corpus": corpus}, "question": "visible"}
    record = {"kind": "method", "run": "1", "sample": "a", "setting": "full", "method": "full", "parameters": "{}"}
    record |= {"ratio": None, "budget": None}
    record["key"] = digest(digest(identity_of(manifest)), "a", setting_key(record))
    manifest["requested"] = [setting_hash(record)]
    kept = without_places(manifest, {}) if packed else manifest
    return SimpleNamespace(manifests={"1": kept}, with_manifests=lambda: [(record, kept)])


@pytest.mark.parametrize(
    ("corpus", "packed", "verdict"),
    [
        ("/home/me/texts", False, Verdict.PROVEN),
        ("/home/me/texts", True, Verdict.UNPROVEN),
        ("texts", True, Verdict.PROVEN),
    ],
)
def test_a_key_is_not_compared_where_a_pack_leaves_out_what_it_is_made_of(corpus, packed, verdict):
    """It was called wrong, and with it an honest pack."""
    assert keys_fit(folder(corpus, packed)).verdict is verdict
