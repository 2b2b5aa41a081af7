"""A model's folder: its weights are safetensors inside it, complete, and what is loaded is what is hashed."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations import hub_kernels

from kvbench.errors import UserError
from kvbench.models import ModelSpec, load
from kvbench.models.folder import model_identity, weight_files
from kvbench.models.gguf_file import _forget_offline
from kvbench.models.load import load_texts


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


def spec(folder) -> ModelSpec:
    return ModelSpec(name="broken", max_length=512, path=str(folder))


def refused(folder) -> str:
    with pytest.raises(UserError) as caught:
        load(spec(folder))
    return str(caught.value)


def change_weights(folder, change) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", {"format": "pt"})


def change_config(folder, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_generation(folder, **values) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_missing_weight_is_an_error_and_not_random(folder):
    name = "model.layers.1.self_attn.q_proj.weight"
    change_weights(folder, lambda weights: {key: value for key, value in weights.items() if key != name})
    assert f"lacks {name}" in refused(folder)


def test_weights_under_another_prefix_are_an_error(folder):
    change_weights(folder, lambda weights: {f"other.{key}": value for key, value in weights.items()})
    assert "lacks" in refused(folder)


def test_an_adapter_beside_the_weights_is_refused_as_only_peft_would_add_it(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": null}')
    assert "adapter_config.json" in refused(folder) and "merge" in refused(folder)


@pytest.mark.parametrize("layers", [2, 5])
def test_a_configuration_with_another_number_of_layers_is_an_error(folder, layers):
    change_config(folder, num_hidden_layers=layers, layer_types=None)
    assert ("lacks" if layers > 3 else "no place") in refused(folder)


def test_weights_of_another_shape_are_an_error(folder):
    name = "model.norm.weight"
    change_weights(folder, lambda weights: weights | {name: torch.ones(7)})
    assert name in refused(folder)


@pytest.mark.parametrize("name", ["sub/w.safetensors", "../w.safetensors", "/etc/w.safetensors", "pytorch_model.bin"])
def test_an_index_may_name_only_safetensors_in_the_folder(folder, name):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "w.safetensors")
    (folder / "sub").mkdir()
    shutil.copy(folder / "w.safetensors", folder / "sub")
    torch.save(weights, folder / "pytorch_model.bin")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"{name!r}" in refused(folder)


def test_an_index_of_files_in_the_folder_is_followed_and_hashed(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "w.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "w.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in weight_files(folder)] == ["w.safetensors"]
    assert load(spec(folder)).model.config.num_hidden_layers == 3
    first = model_identity(str(folder), "main")
    assert "w.safetensors" in first["files"] and "model.safetensors.index.json" in first["files"]
    save_file({key: value + 1 for key, value in weights.items()}, folder / "w.safetensors", {"format": "pt"})
    assert model_identity(str(folder), "main") != first


def test_files_that_loading_does_not_read_are_no_part_of_the_identity(folder):
    first = model_identity(str(folder), "main")
    (folder / "README.md").write_text("a note")
    (folder / "older.json").mkdir()
    assert model_identity(str(folder), "main") == first


def test_a_changed_file_of_equal_size_and_time_has_another_hash(folder):
    path = folder / "config.json"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    first = model_identity(str(folder), "main")
    path.write_text(path.read_text().replace('"rope_theta": 1', '"rope_theta": 2').replace("0.02", "0.03"))
    os.utime(path, ns=times)
    assert model_identity(str(folder), "main") != first
    assert model_identity("org/name", "abc") == {"source": "org/name", "revision": "abc"}


def test_a_chat_template_in_a_folder_of_its_own_is_part_of_the_identity(folder):
    before = model_identity(str(folder), "main")
    template = folder / "additional_chat_templates" / "default.jinja"
    template.parent.mkdir()
    template.with_name("note.txt").write_text("not read")
    assert model_identity(str(folder), "main") == before
    identities = []
    for text in ("one", "two"):
        template.write_text(text)
        assert load(spec(folder)).render("hello", chat=True) == text
        identities.append(model_identity(str(folder), "main"))
    assert "additional_chat_templates/default.jinja" in identities[0]["files"]
    assert before != identities[0] != identities[1]


@pytest.mark.parametrize("kept", [0, 5, 1000])
def test_cut_weights_are_one_line(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert "cannot be read as safetensors" in refused(folder)


@pytest.mark.parametrize(
    "text", ["", "5", "[]", "{", '{"model_type": 7}', '{"model_type": "llama", "hidden_size": "x"}']
)
def test_a_configuration_that_is_none_is_one_line(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"eos_token_id": [2,'])
def test_a_generation_configuration_that_is_none_is_refused(folder, text):
    """transformers went on without it: the tokens that end an answer were those of config.json."""
    (folder / "generation_config.json").write_text(text)
    assert "generation_config.json is not" in refused(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_of_the_tokenizer_that_was_cut_short_is_named(folder, name):
    path = folder / name
    path.write_text(path.read_text()[:-30])
    assert refused(folder).endswith(f"{name} is not JSON")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"])
@pytest.mark.parametrize("instead", ["folder", "dangling link"])
def test_a_folder_or_a_dangling_link_in_place_of_a_file_is_one_line(folder, name, instead):
    (folder / name).unlink()
    if instead == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to("nowhere")
    refused(folder)


def test_a_chat_template_that_is_a_link_to_nothing_is_refused(folder):
    """Prompts were read as raw text instead."""
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").symlink_to("nowhere")
    assert "chat_template.jinja cannot be read: it is a link to nothing" in refused(folder)


def test_a_chat_template_that_fails_is_one_line(folder):
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system prompt') }}")
    with pytest.raises(UserError, match="chat template of broken fails: no system prompt"):
        load(spec(folder)).render("hello", chat=True)


def test_the_embedded_models_identity_does_not_depend_on_the_hub_being_offline(tmp_path):
    config = tmp_path / "tokenizer_config.json"
    texts = []
    for offline in ("true", "false"):
        config.write_text(f'{{\n  "is_local": true,\n  "local_files_only": {offline}\n}}\n')
        _forget_offline(config)
        texts.append(config.read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("eos", [[2, [3]], "x", [2.5], [True]])
def test_stop_tokens_that_are_no_integers_are_one_line(folder, eos):
    change_generation(folder, eos_token_id=eos)
    assert f"has eos_token_id={eos!r}: it must be an integer, a list of integers or null" in refused(folder)


def test_stop_tokens_without_a_logit_are_none_for_the_model_and_for_its_texts(folder):
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    change_generation(folder, eos_token_id=[-1, 2, size - 1, size])
    assert load(spec(folder)).stop_tokens == load_texts(spec(folder)).stop_tokens == {2, size - 1}


@pytest.mark.parametrize("where", [{}, {"text_config": None}], ids=["itself", "inside"])
def test_layers_beyond_any_model_are_refused_before_they_are_laid_out(folder, where):
    many = {"num_hidden_layers": 10_000_000}
    change_config(folder, **({key: many for key in where} or many))
    assert "has num_hidden_layers=10000000: kvbench reads models with at most 10,000" in refused(folder)


KERNEL = "someone/kernel"
KERNELS = {
    "attention": {"_attn_implementation": KERNEL},
    "attention by its public name": {"attn_implementation": KERNEL},
    "paged attention": {"_attn_implementation": f"paged|{KERNEL}@main:forward"},
    "attention of a part": {"text_config": {"_attn_implementation": KERNEL}},
    "attention by part": {"_attn_implementation": {"": "sdpa", "text_config": KERNEL}},
    "attention of a layer": {"per_layer_config": [{"_attn_implementation": KERNEL}]},
    "experts": {"_experts_implementation": KERNEL},
    "a mapping of kernels": {"kernel_config": {"kernel_mapping": {"RMSNorm": f"{KERNEL}:RMSNorm"}}},
    "quantised layers": {"quantization_config": {"quant_method": "eetq", "kernels": [KERNEL]}},
}


@pytest.mark.parametrize("read", [load, load_texts])
@pytest.mark.parametrize("values", KERNELS.values(), ids=KERNELS)
def test_kernels_of_the_hub_are_refused_before_they_are_fetched(values, read, folder, monkeypatch):
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *_, **__: pytest.fail("fetched"))
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda *_, **__: True)
    change_config(folder, **values)
    with pytest.raises(UserError, match=r"config.json of .* has .*someone/kernel.*, code from the hub, which"):
        read(spec(folder))


def test_code_beside_a_configuration_is_not_run(folder, tmp_path):
    """A model of a known kind loads without it, and another one is refused."""
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    (folder / "evil.py").write_text(code)
    change_config(
        folder, auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, use_kernels=True
    )
    load(spec(folder))
    change_config(folder, model_type="evil")
    refused(folder)
    assert not (tmp_path / "ran").exists()


def test_a_pipe_in_the_folder_is_refused_at_once(folder):
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")
    assert refused(folder) == f"{folder / 'tokenizer.json'} cannot be read: it is a pipe, a socket or a device"


def test_a_pipe_in_place_of_a_chat_template_is_refused_at_once(folder):
    (folder / "additional_chat_templates").mkdir()
    os.mkfifo(template := folder / "additional_chat_templates" / "default.jinja")
    assert refused(folder) == f"{template} cannot be read: it is a pipe, a socket or a device"
