"""The greedy codebook against slower readings of Algorithm 1, on real vectors: how much faster, same result?

The plain reading holds the whole matrix and takes one round at a time; the NumPy one has the adjacency of float64
similarities in bits. All run on pre-RoPE keys (theta 0.98) and values (theta 0.95) of one prompt through the embedded
model, one KV head of each layer, in this process and one after the other. Exit code 1 if any result differs.

Also counted: what the kernels for a GPU have to do (kvbench/methods/spindlekv/ops/kernels/greedy_covers.py). `--count
FILE` counts that alone and adds it to the rows of a file made before from the same vectors.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from kvbench.methods.spindlekv.ops.greedy_cover import greedy_cover
from kvbench.ops.directions import directions
from kvbench.prefill import Needs, prefill
from kvbench.utils.environment import git_commit
from scripts.benchmarks.numpy_cover import numpy_cover
from scripts.embedded import HAYSTACK_HELP, embedded_model, text_tokens, text_told
from scripts.frame import script_parser, tell
from tests.reference.plain_codebook import plain_codebook
from tests.reference.voting_cover import voting_cover

THETA = {"keys": 0.98, "values": 0.95}
TILE = 64  # vectors on either side of a tile that the kernel computes in float64 where it must
SLACK = 1e-5  # more than the kernel's similarities can be off with 128 components, as many as Llama-3-8B's heads have
SHARED = 6  # the first rounds, which many programs share
TURNS = 5
SETTLE = 0.3  # seconds before a turn: the threads of NumPy's products stay busy for a while after one


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


def compare(x: Tensor, theta: float, plain: bool) -> dict:
    """Median seconds of each in turns on the same vectors, the plain reading's of one, and whether all agree."""
    fast, arrays = [], []
    for _ in range(TURNS):
        cover, seconds = timed(greedy_cover, x, theta)
        fast.append(seconds)
        expected, seconds = timed(numpy_cover, x, theta)
        arrays.append(seconds)
    row = {
        "vectors": len(x),
        "entries": len(cover.entries),
        # entries that stand for others are picked one after the other, those that stand for themselves in any order
        "picks": int((cover.references.bincount() > 1).sum()),
        "numpy_seconds": round(median(arrays), 4),
        "fast_seconds": round(median(fast), 4),
        "times_faster_than_numpy": round(median(arrays) / median(fast), 1),
    } | counted(x, theta)
    results = [expected]
    if plain:
        result, seconds = timed(plain_codebook, x, theta, before=0)
        results.append(result)
        row |= {"plain_seconds": round(seconds, 4), "times_faster": round(seconds / median(fast), 1)}
    return row | {"equal": all(cover.entries.equal(e) and cover.references.equal(r) for e, r in results)}


def counted(x: Tensor, theta: float) -> dict:
    """Rounds of votes, how often a vector votes on average (and how often in rounds after SHARED),
    bits of the highest degree, and the share of tiles with a similarity too near to theta for tensor cores.
    """
    voted = voting_cover(x, theta)
    units = directions(x[: len(x) // TILE * TILE])
    least = torch.stack([(rows @ units.T - theta).abs().amin(dim=0) for rows in units.split(TILE)])  # of each column
    again = least.view(len(least), -1, TILE).amin(dim=2) < SLACK
    return {
        "rounds": len(voted.votes),
        "votes": round(sum(voted.votes) / len(x), 4),
        "late_votes": round(sum(voted.votes[SHARED:]) / len(x), 4),
        "degree_bits": voted.degree_bits,
        "exact_tiles": round(float(again.float().mean()), 4),
    }


def timed(cover: Callable, x: Tensor, theta: float, before: int = 1) -> tuple[Any, float]:
    """Seconds of a call after some `before`, as in a row of many: threads that slept take milliseconds to wake."""
    time.sleep(SETTLE)
    for _ in range(before):
        cover(x, theta)
    started = time.perf_counter()
    return cover(x, theta), time.perf_counter() - started


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 14, 29])
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain reading, minutes at 8000 tokens")
    parser.add_argument("--haystack-dir", help=HAYSTACK_HELP)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--count", type=Path, help="only count, and add the counts to this result")
    options = parser.parse_args()

    vectors = real_vectors(options.tokens, options.layers, options.haystack_dir)
    if options.count:
        known = json.loads(options.count.read_text(encoding="utf-8"))
        for name, (x, theta) in vectors.items():
            assert known["rows"][name]["entries"] == len(greedy_cover(x, theta).entries), "made from other vectors"
            known["rows"][name] |= counted(x, theta)
        options.count.write_text(json.dumps(known | {"counted_git": git_commit()}, indent=2) + "\n", encoding="utf-8")
        return 0
    rows = {name: compare(x, theta, not options.no_plain) for name, (x, theta) in vectors.items()}
    tell(
        {
            "what": "greedy codebook: seconds of slower readings / seconds of spindlekv.ops.greedy_cover, same result",
            "text": text_told(options.haystack_dir),
            "rows": rows,
            **{
                f"{ratio}_least": min(row[ratio] for row in rows.values())
                for ratio in ("times_faster", "times_faster_than_numpy")
                if all(ratio in row for row in rows.values())
            },
        },
        options.json,
    )
    return 0 if all(row["equal"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
