"""Files of an embedded model that another version of transformers made of the same GGUF file."""

import json

import pytest

from kvbench.runner.verify import check_code
from tests.support.paths import ROOT

MANIFEST = json.loads((ROOT / "results" / "smollm2" / "demo" / "manifest.json").read_text(encoding="utf-8"))
OURS = MANIFEST["packages"]["transformers"]


@pytest.mark.parametrize(
    "here, differ, kind",
    [
        ("9.9", ["config.json", "tokenizer.json"], "missing"),
        (OURS, ["config.json", "tokenizer.json"], "wrong"),
        ("9.9", ["config.json", "model.safetensors"], "wrong"),
    ],
)
def test_they_are_unproven_and_other_weights_are_wrong(here, differ, kind, monkeypatch):
    model, found = MANIFEST["model"], {"wrong": [], "missing": []}
    files = {"files": model["files"] | dict.fromkeys(differ, "0" * 64)}
    monkeypatch.setattr(check_code, "model_folder_of", lambda *_: "")
    monkeypatch.setattr(check_code, "model_identity", lambda *_: files)
    monkeypatch.setattr(check_code, "version", lambda name: here)
    assert not check_code._against_files(MANIFEST, model, {}, False, **found)
    assert len(found[kind]) == 1 and all(name in found[kind][0] for name in differ)
    assert sum(map(len, found.values())) == 1
