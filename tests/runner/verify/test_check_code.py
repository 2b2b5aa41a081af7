"""Files of an embedded model that another version of transformers made of the same GGUF file, and random weights."""

import json
from types import SimpleNamespace

import pytest

from kvbench.models.random_weights import random_source
from kvbench.runner.verify import check_code
from kvbench.runner.verify.materials import tokenizer_of
from kvbench.runner.verify.verdict import Verdict
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


def drawn(source: str | None = None, tokenizer: str = "0" * 64, **random) -> dict:
    """The manifest of a run with random weights of a shape that differs from the preset's by `random`."""
    config = dict(check_code.preset_of("llama3-8b-random"))
    config["random"] = config["random"] | random
    identity = {"source": source or random_source(config["random"]), "revision": "random"}
    return {"model": identity | {"tokenizer": {"files": {"tokenizer.json": tokenizer}}}, "config": {"model": config}}


@pytest.mark.parametrize(
    "manifest, verdict",
    [
        (drawn(), Verdict.PLAUSIBLE),
        (drawn(num_hidden_layers=2), Verdict.UNPROVEN),  # what conf/model advises for a machine without GPU
        (drawn(random_source({"model_type": "gpt2"}), num_hidden_layers=2), Verdict.WRONG),
    ],
)
def test_random_weights_may_have_a_shape_of_their_own_but_not_the_source_of_another(manifest, verdict):
    assert check_code.one_model(SimpleNamespace(manifests={"run": manifest}), {}).verdict is verdict


def test_a_run_of_random_weights_has_its_prompts_counted_by_its_own_tokenizer_alone():
    with pytest.raises(ValueError, match="than the run's model"):
        tokenizer_of(drawn(), {})
