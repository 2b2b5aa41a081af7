"""llama.cpp as a setting: mistakes before a sample is made, and runs with a worker that stands for it."""

import json
from types import SimpleNamespace

import pytest
from transformers import Gemma3TextConfig

from kvbench.engines import LlamaCpp
from kvbench.engines.settings import engine_settings
from kvbench.errors import Incomplete, UserError
from kvbench.records import load
from tests.support.config import composed_engine
from tests.support.runs import arguments, reported, run


def command(tiny_folder, out, environment, gguf, *more: str) -> list[str]:
    own = ["engine=llama_cpp", f"engine.python={environment}", f"engine.model_file={gguf}", f"output_dir={out}"]
    return [*arguments(tiny_folder, out)[:-3], *own, *more]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"k": "q8"}, "unknown engine.k 'q8'.*'q8_0'"),
        ({"v": "q4_0", "flash_attention": False}, "engine.v=q4_0 needs engine.flash_attention=true"),
        ({"k": "q8_0", "flash_attention": False}, "engine.v=q8_0 needs engine.flash_attention=true"),
        ({"repeat": -1}, "engine.repeat=-1 must be an integer of at least 0"),
    ],
)
def test_wrong_settings_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        LlamaCpp(**options)


def test_without_the_engine_the_line_that_installs_it_is_shown(embedded, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvbench.engines.worker.__file__", str(tmp_path / "kvbench" / "engines" / "worker.py"))
    with pytest.raises(
        UserError, match=r"make engine-llama.*\.venv-llama/bin/pip install 'llama-cpp-python==0\.3\.36'"
    ):
        LlamaCpp().connect(embedded)
    with pytest.raises(UserError, match=r"engine\.python=/nowhere is neither a Python"):
        LlamaCpp(python="/nowhere").connect(embedded)


def test_lists_make_every_combination_with_labels_of_their_own():
    node = composed_engine("llama_cpp", "engine.k=[f16,q8_0]", "engine.v=[f16,q4_0]")
    assert [setting.label for setting in engine_settings(node)] == [
        *("llama_cpp f16/f16", "llama_cpp f16/q4_0", "llama_cpp q8_0/f16", "llama_cpp q8_0/q4_0")
    ]
    same = composed_engine("llama_cpp", "engine.k=[f16,q8_0]")
    assert [setting.label for setting in engine_settings(same)] == ["llama_cpp f16/f16", "llama_cpp q8_0/q8_0"]


def test_rotation_is_a_part_of_quantised_types_alone():
    settings = engine_settings(composed_engine("llama_cpp", "engine.k=q4_0", "engine.rotation=[true,false]"))
    assert [one.label for one in settings] == ["llama_cpp q4_0/q4_0", "llama_cpp q4_0/q4_0 unrotated"]
    assert [one.engine.parameters.get("rotation") for one in settings] == [None, False]  # records of before have none
    whole = LlamaCpp(swa_full=True)
    assert whole.label == "llama_cpp f16/f16 swa_full=true" and whole.parameters["swa_full"] is True
    assert "swa_full" not in LlamaCpp().parameters
    plain = LlamaCpp(k="f16", rotation=False)
    assert plain.label == "llama_cpp f16/f16" and "rotation" not in plain.parameters


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["engine.k=[f16,q8_0]", "engine.label=[a]"], "engine.label has 1 names for 2 settings"),
        (["engine.k=[]"], r"engine.k=\[\] leaves nothing to run"),
        (["engine.k=[f16,f16]"], "two settings of engine= are called 'llama_cpp f16/f16'"),
        (["engine.label=full"], "begins with the name of a method: 'full'"),
    ],
)
def test_wrong_lists_are_one_line(overrides, message):
    with pytest.raises(UserError, match=message):
        engine_settings(composed_engine("llama_cpp", *overrides))


def test_a_run_marks_bytes_as_reported_and_stated(tiny_folder, tmp_path, environment, gguf):
    out = tmp_path / "runs"
    folder = reported(*command(tiny_folder, out, environment(), gguf, "engine.k=[f16,q8_0]", "distance=true"))
    records = load(folder)
    assert len(records) == 6 and records["reported_bytes"].eq(1000).all()
    n, elements = records["prompt_tokens"], 3 * 2 * 8  # layers, KV heads, channels
    f16 = records["setting"] == "llama_cpp f16/f16"
    assert (
        records["stated_bytes"] == (n * elements * 32 // 8)[f16].reindex(n.index).fillna(n * elements * 17 // 8)
    ).all()
    told = json.loads(records["parameters"][0])
    assert told["version"] == "9.9" and told["model_file"].startswith("sha256:") and "python" not in told
    assert records["distance"].map(lambda found: found["top1"] == 1).all()
    assert records[~f16]["distance"].map(lambda found: found["kl_at_least"] > 0).all()
    table = (folder / "table.md").read_text()
    assert " stated, 1,000 reported |" in table and " counted |" not in table


@pytest.mark.parametrize(
    "swa_full, windows, held", [(None, True, 100), (True, True, 100), (False, True, 8), (False, False, 100)]
)
def test_layers_with_a_window_state_all_tokens_unless_llama_cpp_keeps_the_window_alone(swa_full, windows, held):
    sliding, full = "sliding_attention", "full_attention"
    sizes = dict(num_key_value_heads=1, head_dim=16, sliding_window=8)
    config = Gemma3TextConfig(num_hidden_layers=3, layer_types=[sliding, sliding, full], **sizes)
    engine = LlamaCpp(swa_full=swa_full)
    engine.reader, engine.reported, engine.windows = SimpleNamespace(config=config), None, windows
    assert engine.cache_bytes(100).stated == (held + held + 100) * 16 * 2 * 2  # channels, keys and values, f16


@pytest.mark.parametrize(
    "mode, message",
    [
        ("refuses", "llama_cpp f16/f16: init_from_model: no f16 here"),
        ("other model", "has 7 tokens in its vocabulary, and smollm2-135m has 4,096: they are not the same model"),
        ("other depth", r"has num_hidden_layers 31, and smollm2-135m has 3: they are not the same model"),
        ("other tokens", r"has the token 17 '<unk>', and smollm2-135m '!': they are not the same model"),
    ],
)
def test_what_the_engine_refuses_is_one_line_before_samples_are_made(
    mode, message, tiny_folder, tmp_path, environment, gguf
):
    with pytest.raises(UserError, match=message):
        run(*command(tiny_folder, tmp_path / "runs", environment(mode), gguf))
    assert not list((tmp_path / "runs").rglob("records.jsonl"))


def test_a_worker_that_dies_loses_nothing_and_says_how(tiny_folder, tmp_path, environment, gguf):
    out = tmp_path / "runs"
    with pytest.raises(
        Incomplete, match=r"its process ended with SIGKILL: out of memory; all earlier records are safe"
    ):
        run(*command(tiny_folder, out, environment("dies"), gguf, "engine.repeat=0"))
    folder = run(*command(tiny_folder, out, environment(), gguf, "engine.repeat=0"))
    assert len(load(folder)) == 3


def test_a_worker_that_hangs_is_ended_at_the_deadline(tiny_folder, tmp_path, environment, gguf):
    with pytest.raises(Incomplete, match=r"no answer within 0\.5 s"):
        out = tmp_path / "runs"
        run(*command(tiny_folder, out, environment("hangs"), gguf, "engine.timeout=0.5"))


def test_a_sample_that_the_engine_cannot_answer_is_named(tiny_folder, tmp_path, environment, gguf):
    with pytest.raises(
        Incomplete, match=r"1 record could not be made.*number-330-.*Requested tokens exceed the context"
    ):
        run(*command(tiny_folder, tmp_path / "runs", environment("cannot"), gguf, "engine.repeat=0"))
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(load(folder)) == 2
