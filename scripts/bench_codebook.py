"""The greedy codebook against a plain reading of Algorithm 1, on real vectors: how much faster, same result?

Runs both on pre-RoPE keys (theta 0.98) and values (theta 0.95) of one prompt through the embedded model,
one KV head of each layer, in this process and one after the other. Exit code 1 if any result differs.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import torch
from bench_common import HAYSTACK_HELP, embedded_model, tell, text_tokens, text_told
from torch import Tensor

from kvbench.ops.greedy_cover import greedy_cover
from kvbench.prefill import Needs, prefill
from tests.reference.plain_codebook import plain_codebook

THETA = {"keys": 0.98, "values": 0.95}


def real_vectors(tokens: int, layers: list[int], haystack_dir: str | None) -> dict[str, tuple[Tensor, float]]:
    """Name → vectors [tokens, head_dim] and their threshold, from the first KV head of each layer."""
    model = embedded_model()
    state = prefill(model.model, text_tokens(model, tokens, haystack_dir), Needs())
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
        cover = greedy_cover(x, theta)
        fast.append(time.perf_counter() - started)
    started = time.perf_counter()
    entries, references = plain_codebook(x, theta)
    plain = time.perf_counter() - started
    return {
        "vectors": len(x),
        "entries": len(entries),
        "plain_seconds": round(plain, 4),
        "fast_seconds": round(median(fast), 4),
        "times_faster": round(plain / median(fast), 1),
        "equal": cover.entries.equal(entries) and cover.references.equal(references),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 14, 29])
    parser.add_argument("--haystack-dir", help=HAYSTACK_HELP)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()

    vectors = real_vectors(options.tokens, options.layers, options.haystack_dir)
    rows = {name: compare(x, theta) for name, (x, theta) in vectors.items()}
    tell(
        {
            "what": "greedy codebook: seconds of the plain reading / seconds of kvbench.ops.greedy_cover, same result",
            "text": text_told(options.haystack_dir),
            "rows": rows,
            "times_faster_least": min(row["times_faster"] for row in rows.values()),
        },
        options.json,
    )
    return 0 if all(row["equal"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
