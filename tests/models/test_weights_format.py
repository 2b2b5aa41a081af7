"""Weights in fewer bits than the model computes with are named in the manifest and in titles."""

import pytest
from transformers import BitsAndBytesConfig, LlamaConfig

from kvbench.models.weights_format import told, weights_format
from kvbench.papers.captions import caption
from kvbench.records.provenance import provenance

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
    assert told(config) == ({} if name is None else {"weights_format": name})


@pytest.mark.parametrize("said, name", [("Q4_K_M GGUF", "Q4_K_M GGUF"), ("\x1b[2J GGUF", None), ({"a": 1}, None)])
def test_only_what_a_converted_file_says_is_taken_from_a_configuration(said, name):
    assert weights_format(LlamaConfig(weights_format=said)) == name


def test_a_title_never_calls_weights_in_four_bits_by_the_dtype_that_computes_alone():
    plain, four = ({"dtype": "torch.float32"} | more for more in ({}, {"weights_format": "4-bit bitsandbytes"}))
    names = [caption("", "niah", "llama", str(provenance(manifest)["dtype"])) for manifest in (plain, four)]
    assert names == ["niah · llama (float32)", "niah · llama (4-bit bitsandbytes weights, float32)"]
