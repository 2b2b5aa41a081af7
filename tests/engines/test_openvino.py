"""OpenVINO as a setting: mistakes before a sample is made, and runs with a worker that stands for it."""

import json

import pytest

from kvbench.engines import OpenVINO
from kvbench.engines.settings import engine_settings
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.config import composed_engine
from tests.support.runs import arguments, run


def command(tiny_folder, out, environment, gguf, *more: str) -> list[str]:
    own = ["engine=openvino", f"engine.python={environment}", f"engine.model_file={gguf}", f"output_dir={out}"]
    return [*arguments(tiny_folder, out)[:-3], *own, *more]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"precision": "u2"}, "unknown engine.precision 'u2'.*u8"),
        ({"aggregation": "MAX"}, "unknown engine.aggregation 'MAX'.*NORM_SUM"),
        ({"max_cache_size": 160}, "engine.max_cache_size=160 must be above engine.start_size.*32 [+] 128"),
        ({"max_cache_size": 0}, "engine.max_cache_size=0 must be an integer of at least 1"),
        ({"kvcrush": 2}, "engine.kvcrush chooses among tokens that eviction keeps: it needs engine.max_cache_size"),
        ({"kvcrush_anchor": "MEAN"}, "engine.kvcrush_anchor needs engine.kvcrush"),
        ({"sparse_recent": 64}, "engine.sparse_recent needs engine.sparse_prefill=TRISHAPE or XATTENTION"),
        ({"sparse_prefill": "FLASH"}, "unknown engine.sparse_prefill 'FLASH'.*XATTENTION"),
        ({"sparse_threshold": 0.0}, "engine.sparse_threshold=0.0 must be a number above 0"),
    ],
)
def test_wrong_settings_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        OpenVINO(**options)


def test_without_the_engine_the_line_that_installs_it_is_shown(embedded, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvbench.engines.worker.__file__", str(tmp_path / "kvbench" / "engines" / "worker.py"))
    with pytest.raises(
        UserError, match=r"make engine-openvino.*\.venv-openvino/bin/pip install 'openvino-genai==2026\.4\.1\.0'"
    ):
        OpenVINO().connect(embedded)


def test_labels_name_precision_and_eviction_and_parameters_only_what_acts():
    node = composed_engine("openvino", "engine.precision=[null,u8]", "engine.max_cache_size=[null,672]")
    settings = engine_settings(node)
    assert [setting.label for setting in settings] == [
        *("openvino default", "openvino default NORM_SUM 672", "openvino u8", "openvino u8 NORM_SUM 672")
    ]
    assert not {"kvcrush", "sparse_prefill", "prefix_caching"} & settings[1].engine.parameters.keys()
    sparse = OpenVINO(sparse_prefill="TRISHAPE", sparse_recent=64, max_cache_size=672, kvcrush=2)
    assert sparse.label == "openvino default NORM_SUM 672 kvcrush=2 sparse_prefill=TRISHAPE sparse_recent=64"
    assert sparse.parameters["kvcrush"] == 2 and sparse.parameters["sparse_recent"] == 64
    assert "start_size" not in settings[0].engine.parameters and settings[1].engine.parameters["start_size"] == 32


def test_a_run_has_bytes_of_whole_blocks_and_no_distance_under_eviction(tiny_folder, tmp_path, environment, gguf):
    more = ["engine.max_cache_size=[null,192]", "distance=true"]
    folder = run(*command(tiny_folder, tmp_path / "runs", environment(), gguf, *more))
    records = load(folder)
    assert len(records) == 6 and records["reported_bytes"].eq(1000).all()
    evicts = records["setting"] == "openvino default NORM_SUM 192"
    blocks = -(-records["prompt_tokens"] // 32)
    assert (blocks > 6).all()
    assert records["stated_bytes"].tolist() == (blocks.mask(evicts, 6) * 32 * 10.5).astype(int).tolist()
    assert records[~evicts]["distance"].notna().all() and records[evicts]["distance"].isna().all()
    told = json.loads(records[evicts]["parameters"].iloc[0])
    assert told["version"] == "9.9" and told["genai"] == "9.8" and told["aggregation"] == "NORM_SUM"
    assert told["model_file"].startswith("sha256:") and "python" not in told and "threads" not in told


def test_what_the_engine_refuses_is_one_line_before_samples_are_made(tiny_folder, tmp_path, environment, gguf):
    with pytest.raises(UserError, match=r"^openvino u4: init_from_model: no u4 here$"):
        run(*command(tiny_folder, tmp_path / "runs", environment("refuses"), gguf, "engine.precision=u4"))
    assert not list((tmp_path / "runs").rglob("records.jsonl"))


def test_a_model_is_known_by_its_network_and_weights(tiny_folder, tmp_path, environment):
    model = tmp_path / "model"
    model.mkdir()
    found = []
    for weights in (b"1", b"2"):
        (model / "openvino_model.xml").write_bytes(b"<net/>")
        (model / "openvino_model.bin").write_bytes(weights)
        folder = run(*command(tiny_folder, tmp_path / f"runs-{weights.decode()}", environment(), model))
        found += [json.loads(one)["model_file"] for one in load(folder)["parameters"]]
    assert len(found) == 6 and len({*found}) == 2  # other weights: other records
    with pytest.raises(UserError, match=r"engine\.model_file=.*has no openvino_model\.xml"):
        run(*command(tiny_folder, tmp_path / "runs", environment(), tmp_path))
