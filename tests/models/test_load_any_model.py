"""Models without a preset: `model=org/name` of the hub and `model=/folder`, and arguments of `from_pretrained`."""

from shutil import copytree

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.models import ModelSpec, load
from kvbench.models.layer_kinds import kinds_of
from kvbench.prefill import Needs
from kvbench.prefill.full import prefill
from kvbench.runner.manifest import folder_identity
from tests.support.command import command_line
from tests.support.tiny import tiny_config

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}


@pytest.fixture(scope="module")
def folder(embedded, tmp_path_factory):
    """A tiny random Llama with the embedded model's tokenizer, in the hub's layout."""
    folder = tmp_path_factory.mktemp("any") / "tiny llama, v'1"
    config = tiny_config()
    config.vocab_size = 49152
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    embedded.tokenizer.save_pretrained(folder)
    return folder


def test_a_model_of_the_hub_is_named_after_its_id():
    spec = configured(["model=org/Name-1.5", "model.revision=abc"]).model
    assert (spec.name, spec.hub_id, spec.revision, spec.max_length) == ("org/Name-1.5", "org/Name-1.5", "abc", None)


def test_a_folder_names_the_model_and_its_configuration_the_context_limit(folder):
    spec = configured([f"model={folder}"]).model
    assert (spec.name, spec.path) == (folder.name, str(folder))
    assert load(spec).spec.max_length == 512


def test_a_given_context_limit_holds(folder):
    spec = configured([f"model={folder}", "model.max_length=400"]).model
    assert load(spec).spec.max_length == 400


def command(capsys, *arguments) -> tuple[int, str]:
    """Exit code and standard error of `kvbench ARGUMENTS`, with its lines joined."""
    code = command_line(*arguments)
    return code, " ".join(capsys.readouterr().err.split())


def run_of(folder, tmp_path, *more):
    few = ("method=full", "benchmark.depths=[50]", "limit=1", f"output_dir={tmp_path}")
    return (f"model={folder}", *few, *more)


@pytest.mark.heavy
def test_a_folder_runs_and_its_context_limit_is_checked(folder, capsys, tmp_path):
    code, told = command(capsys, *run_of(folder, tmp_path, "benchmark.lengths=[320]"))
    assert code == 0, told
    (made,) = tmp_path.glob("niah-tiny llama, v'1-*")
    assert (made / "table.md").is_file()
    code, told = command(capsys, *run_of(folder, tmp_path, "benchmark.lengths=[500]"))
    assert code == 2
    assert f"takes 532 tokens, but {folder.name} reads at most 512" in told


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("model=hf", "model=hf needs a model: model=org/name on the hub, or model=/folder"),
        ("model=/nowhere/at/all", "model.path='/nowhere/at/all' must be a folder with a config.json"),
        ("model=kvbench/no-such-model", "model 'kvbench/no-such-model' could not be loaded from kvbench/no-such-model"),
        ("model=llama3-8b,org/name", "a sweep takes either presets or org/name, not both"),
    ],
)
def test_a_model_that_is_not_there_is_one_line(model, message, capsys, tmp_path):
    code, told = command(capsys, model, "limit=1", f"output_dir={tmp_path}")
    assert code == 2
    assert message in told
    assert "Traceback" not in told


def test_load_args_reach_from_pretrained_and_are_part_of_the_identity(folder):
    rope = "{rope_type: yarn, rope_theta: 10000.0, factor: 4.0, original_max_position_embeddings: 512}"
    cfg = configured([f"model={folder}", f"model.load_args={{rope_parameters: {rope}}}"])
    loaded = load(cfg.model)
    assert {key: loaded.model.config.rope_parameters[key] for key in YARN} == YARN
    assert loaded.model.model.rotary_emb.attention_scaling > 1
    assert folder_identity(cfg, loaded, [])["load_args"] == {"rope_parameters": YARN}
    assert "load_args" not in folder_identity(cfg, load(ModelSpec(name="m", path=str(folder))), [])


@pytest.mark.parametrize(
    "args", [{"no_such_argument": 1}, {"quantization_config": {"quant_method": "gptq", "bits": 4}}], ids=lambda a: [*a]
)
def test_load_args_that_cannot_be_used_are_one_line(folder, args):
    with pytest.raises(UserError, match="could not be loaded from"):
        load(ModelSpec(name="m", path=str(folder), load_args=args))


def test_load_args_that_come_after_the_layers_are_decided_are_refused(embedded, tmp_path):
    """They were part of the run's identity and changed nothing."""
    sliding = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
    config = Qwen2Config(**tiny_config("qwen2").to_dict() | sliding | {"vocab_size": 49152, "layer_types": None})
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    embedded.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model.load_args: transformers sets use_sliding_window too late to change"):
        load(ModelSpec(name="m", path=str(tmp_path), load_args={"use_sliding_window": False}))
    for given, windows in (
        ({"sliding_window": 20}, [None, 20, 20]),
        ({"layer_types": ["full_attention"] * 3}, [None] * 3),
    ):
        loaded = load(ModelSpec(name="m", path=str(tmp_path), load_args=given))
        assert [kind.window for kind in kinds_of(loaded.config)] == windows


def test_a_stop_token_that_the_generation_configuration_overrules_is_refused(folder, tmp_path):
    """It was part of the run's identity and ended no answer."""
    folder = copytree(folder, tmp_path / "copy")
    GenerationConfig(eos_token_id=0).save_pretrained(folder)
    with pytest.raises(UserError, match=r"eos_token_id=2 ends no answer, .* has 0: model.stop_tokens=\[TOKEN\] adds a"):
        load(ModelSpec(name="m", path=str(folder), load_args={"eos_token_id": 2}))
    assert load(ModelSpec(name="m", path=str(folder), load_args={"eos_token_id": 0})).stop_tokens == {0}


def test_a_configuration_that_wants_tuples_gives_logits_by_name(folder):
    """It was a traceback at the first prompt."""
    loaded = load(ModelSpec(name="m", path=str(folder), load_args={"return_dict": False}))
    assert prefill(loaded.model, torch.arange(3, 40), Needs()).logits.shape == (49152,)


@pytest.mark.parametrize("name", ["trust_remote_code", "dtype", "use_safetensors", "device_map", "adapter_kwargs"])
def test_what_other_keys_set_is_no_load_argument(name):
    with pytest.raises(UserError, match=f"that kvbench leaves free, which '{name}' is not"):
        ModelSpec(name="m", hub_id="org/m", load_args={name: True})


def test_weights_that_do_not_fit_on_the_gpu_are_told_with_how_many_parts(folder, monkeypatch, capsys):
    """accelerate leaves them in the machine's memory and copies them for every token."""
    read = AutoModelForCausalLM.from_pretrained

    def divided(*args, **options):
        model, loading = read(*args, **options)
        model.hf_device_map = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu", "lm_head": "disk"}
        return model, loading

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", divided)
    load(configured([f"model={folder}"]).model)
    (line,) = capsys.readouterr().err.splitlines()
    assert "no room for 2 of 4 parts" in line and "model.layers.1 to lm_head" in line


@pytest.mark.parametrize("kind, told", [(None, False), ("cuda", False), ("mps", True), ("xpu", True)])
def test_a_machine_whose_gpu_is_not_taken_says_so(folder, kind, told, monkeypatch, capsys):
    other = None if kind is None else torch.device(kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: other)
    load(configured([f"model={folder}"]).model)
    assert (f"model.device={kind}" in capsys.readouterr().err) == told
    load(configured([f"model={folder}", "model.device=cpu"]).model)
    assert capsys.readouterr().err == ""
