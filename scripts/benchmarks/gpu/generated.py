"""FullKV's tokens beside those of transformers' generate, of weights in 16, 32 and 4 bits."""

from importlib.util import find_spec
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.sdpa import without_cudnn
from scripts.benchmarks.gpu.models import prefilled_ids, token_ids

TOKENS = 32


@torch.inference_mode()
def beside_generate(model: PreTrainedModel, n: int) -> dict:
    """The tokens of both after a prompt of n tokens, and the first that rounding could change: on a GPU kvbench's
    attention of single tokens is another kernel than generate's."""
    ids = token_ids(n, model.config.vocab_size)
    state = prefilled_ids(model, ids)
    mine = generate(model, FullKV().compress(state, n), state.logits, TOKENS, frozenset())
    return {"tokens": mine.tokens, "generated": generated(model, ids, TOKENS), "close_call": mine.close_call}


def generated(model: PreTrainedModel, ids: Tensor, count: int) -> list[int]:
    """What transformers' generate makes of ids [n], with torch's own attention.

    Without cuDNN's, as kvbench decodes: it plans anew for every length, for longer than a token takes.
    """
    model.set_attn_implementation("sdpa")
    ids = ids[None].to(model.device)
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
    try:
        with without_cudnn():
            out: Tensor = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    finally:
        model.set_attn_implementation(ATTENTION)
    return out[0, ids.shape[1] :].tolist()


def in_four_bits(model: PreTrainedModel, device: str) -> PreTrainedModel | None:
    """`model` with weights in NF4, loaded as a user's checkpoint is; None where bitsandbytes is not installed."""
    if find_spec("bitsandbytes") is None:
        return None
    quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=model.dtype)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            attn_implementation=ATTENTION,
            dtype=model.dtype,
            device_map={"": device},
            quantization_config=quantised,
        )
    return loaded.eval()
