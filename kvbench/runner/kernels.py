"""The code that computes a run: Triton kernels or torch (`kernels=`), and torch's backend for a prompt's attention."""

import time
from importlib.metadata import version

import torch
from torch.nn.functional import linear
from transformers import PreTrainedModel

from kvbench.configuration import ModelSpec
from kvbench.errors import UserError
from kvbench.models.token_numbers import decoding_heads_of, heads_of
from kvbench.ops.gpu import build_error, runs_kernels
from kvbench.ops.operator import OLDEST_TRITON, chosen, compiles, kernels_on, triton_version
from kvbench.ops.sdpa import MATH, decoding_backend, prompt_backend
from kvbench.utils.console import warn

CLEARLY = 1.25  # times as long: more than two measurements of one product differ by
NEEDED = ".".join(map(str, OLDEST_TRITON))
COMPILER = "It needs a C compiler and Python's headers (Debian: gcc and python3-dev)"


def check_computing(kernels: str, decode_engine: str, spec: ModelSpec) -> None:
    """Refuse kernels and ways of decoding that the model's device does not have."""
    check_kernels(kernels, spec.resolve_device())
    check_decoding(decode_engine, spec)


def check_kernels(kernels: object, device: str) -> None:
    """Refuse Triton if the model is on no GPU or Triton is missing."""
    if kernels != "triton":
        return
    if torch.device(device).type != "cuda":
        raise UserError(f"kernels=triton needs a CUDA GPU, and the model is on {device}: kernels=auto or torch")
    if (installed := triton_version()) is None:
        raise UserError("kernels=triton needs triton, which is not installed: pip install triton, or kernels=torch")
    if not compiles(installed):
        raise UserError(
            f"kernels=triton needs triton {NEEDED} or later, and {installed} is installed: kernels=auto or torch"
        )
    if reason := build_error(torch.device(device)):
        raise UserError(f"kernels=triton: Triton cannot build a kernel here: {reason}. {COMPILER}, or kernels=torch")


def check_decoding(engine: str, spec: ModelSpec) -> None:
    """Refuse a CUDA graph unless the model will be on one GPU, and compiled layers without Triton."""
    device = spec.resolve_device()
    if engine in ("graph", "fused") and (torch.device(device).type != "cuda" or spec.device_map):
        where = f"spread by device_map={spec.device_map}" if spec.device_map else f"on {device}"
        raise UserError(f"decode.engine={engine} needs a model on one GPU, and the model is {where}: auto or eager")
    if engine == "fused" and triton_version() is None:
        raise UserError("decode.engine=fused needs triton, which is not installed: pip install triton, or graph")
    if engine == "fused" and (why := build_error(torch.device(device))):
        raise UserError(f"decode.engine=fused: Triton cannot build a kernel here: {why}. {COMPILER}, or graph")


def computed_by(model: PreTrainedModel) -> dict[str, str]:
    """For the manifest: `kernels` ("torch", "triton VERSION" or "numba VERSION"), and torch's backends of attention:
    `sdpa` for a prompt, `sdpa_decode` for a decoded token over a dense cache.

    Warns if a prompt's attention makes n × n weights on a GPU, if Triton is too old for the kernels, and if a CPU
    multiplies with weights in the model's 16 bits clearly slower than in float32.
    """
    device = model.device
    kernels = kernels_on(device)
    if device.type == "cuda" and chosen() == "auto" and (why := without_triton(device)):
        warn(f"{why}: torch computes what the Triton kernels would")
    heads = heads_of(model.config)
    sdpa = prompt_backend(*heads, model.dtype, device)
    if sdpa == MATH and device.type == "cuda":
        warn(
            f"attention in {str(model.dtype).removeprefix('torch.')} with head_dim {heads.head_dim} has only torch's "
            "math backend here: a prompt of n tokens makes n × n weights (prefill.chunk=N: N × n)"
        )
    if device.type == "cpu" and model.dtype.itemsize == 2 and (cost := cost_of(model.dtype)) >= CLEARLY:
        name = str(model.dtype).removeprefix("torch.")
        warn(
            f"products of prompts with weights take {cost:.1f} times as long in {name} as in float32 on this CPU, just "
            "measured: model.dtype=auto"
        )
    decoding = decoding_backend(*decoding_heads_of(model.config), model.dtype, device)
    name = {"torch": "torch", "triton": f"triton {triton_version()}"}.get(kernels) or f"numba {version('numba')}"
    return {"kernels": name, "sdpa": sdpa, "sdpa_decode": decoding}


def without_triton(device: torch.device) -> str | None:
    """Why an installed Triton is not used on a GPU; None if it is used, or if none is installed."""
    version = triton_version()
    if version is not None and not compiles(version):
        return f"triton {version} is older than {NEEDED}"
    if version is not None and runs_kernels(device) and (why := build_error(device)):
        return f"Triton cannot build a kernel here ({why}). {COMPILER}"
    return None


def cost_of(dtype: torch.dtype) -> float:
    """Times as long as in float32 that a product of a prompt with weights takes on this CPU, in about 0.1 s.

    Measured, for the instructions that a CPU names do not tell: an Intel Xeon with avx512_bf16, whose AMX its
    hypervisor hides, takes 1.8 times as long in bfloat16.
    """
    return product_seconds(dtype) / product_seconds(torch.float32)


@torch.inference_mode()
def product_seconds(dtype: torch.dtype) -> float:
    """CPU seconds of this thread, the fewest of several: other processes can only add to them."""
    tokens, weights = (torch.ones(rows, 1024, dtype=dtype) for rows in (128, 512))
    seconds = []
    for _ in range(4):
        started = time.thread_time()
        linear(tokens, weights)
        seconds.append(time.thread_time() - started)
    return min(seconds)
