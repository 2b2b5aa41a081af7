"""What computes a run: Triton kernels or torch (`kernels=`), and torch's backend of a prompt's attention."""

from importlib.metadata import version

import torch
from transformers import PreTrainedModel

from kvbench.errors import UserError
from kvbench.ops.operator import installed, kernels_on
from kvbench.ops.sdpa import MATH, decoding_backend, prompt_backend
from kvbench.utils.console import warn


def check_kernels(kernels: object, device: str) -> None:
    """Refuse Triton where the model is on no GPU or Triton is missing."""
    if kernels != "triton":
        return
    if torch.device(device).type != "cuda":
        raise UserError(f"kernels=triton needs a CUDA GPU, and the model is on {device}: kernels=auto or torch")
    if not installed("triton"):
        raise UserError("kernels=triton needs triton, which is not installed: pip install triton, or kernels=torch")


def computed_by(model: PreTrainedModel) -> dict[str, str]:
    """For the manifest: `kernels` ("torch", "triton VERSION" or "numba VERSION"), and torch's backends of attention:
    `sdpa` of a prompt's, `sdpa_decode` of a decoded token's over a dense cache.

    Warns where that backend makes n × n weights on a GPU.
    """
    config, device = model.config.get_text_config(), model.device
    kernels = kernels_on(device)
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    shape = (heads, kv_heads, head_dim, model.dtype, device)
    sdpa = prompt_backend(*shape)
    if sdpa == MATH and device.type == "cuda":
        warn(
            f"attention in {str(model.dtype).removeprefix('torch.')} with head_dim {head_dim} has only torch's math "
            "backend here: a prompt of n tokens makes n × n weights (prefill.chunk=N: N × n)"
        )
    name = kernels if kernels == "torch" else f"{kernels} {version(kernels)}"
    return {"kernels": name, "sdpa": sdpa, "sdpa_decode": decoding_backend(*shape)}
