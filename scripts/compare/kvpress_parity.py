"""Do kvbench and kvpress keep the same tokens, given the same queries and keys?

kvpress 0.5.5 and kvbench need different versions of transformers, so this runs in three steps that leave
files in one folder; the middle one runs in an environment that has kvpress and not kvbench:

    python -m scripts.compare.kvpress_parity prompts FOLDER              # kvbench: models and token ids
    KVPRESS_ENV/bin/python -m scripts.compare.kvpress_parity press FOLDER   # kvpress: its kept tokens, and its tensors
    python -m scripts.compare.kvpress_parity compare FOLDER              # kvbench: its kept tokens, and the table

kvpress's own `score` and `compress` are called on the attention modules of running models. What they keep is
read off by giving `compress` positions as values. See scripts/README.md for the result.
"""

import json
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file

from scripts.compare.presses.cases import CHANNELS, PRESSES, REMOVED, build_model, grid, prompts, versions
from scripts.compare.presses.recording import press
from scripts.frame import script_parser


@torch.inference_mode()
def compare(folder: Path) -> None:
    """Step 3, with kvbench: the same budgets on the same tensors; prints the tables of scripts/README.md."""
    from kvbench.methods import ThinK
    from kvbench.ops.rope import Rope

    counts = defaultdict(lambda: {"sets": 0, "equal": 0, "sizes": 0, "gap": 0.0, "short": 0})
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        tensors, n = load_file(folder / f"{number}.safetensors"), len(case["ids"])
        layers, rope = 1 + max(int(name.split("/")[0]) for name in tensors), Rope.from_model(build_model(case))
        for layer in range(layers):
            state = build_state(tensors, layer, rope)
            for name, (kind, options) in PRESSES.items():
                method, scores = build_method(kind, options), tensors[f"{layer}/{name}/scores"]
                for removed in REMOVED:
                    theirs = tensors.get(f"{layer}/{name}/{removed}")
                    if theirs is None:
                        continue
                    asked = round(n * (1 - removed))
                    # kvpress cuts n * (1 - removed) off with float noise, sometimes to one token less than asked
                    budget = asked if kind == "pyramidkv" else theirs.shape[1]
                    ours = kept_positions(method, state, layers, budget).to(torch.int32)
                    tally(counts[case["model"], name], ours.expand(len(theirs), -1), theirs, scores)
                    counts[case["model"], name]["short"] += budget < asked
            for share in CHANNELS:
                ours, theirs = kept_channels(state, share), tensors[f"{layer}/think/{share}"]
                scores = ThinK().scores(state, state.keys)
                tally(
                    counts[case["model"], "think"],
                    *(x.nonzero()[:, 1].view(len(x), -1) for x in (ours, theirs)),
                    scores,
                )
    print("| model | setting | sets of layer and head | equal sets | equal sizes | largest gap |")
    print("|---|---|---|---|---|---|")
    for (model, name), row in counts.items():
        print(f"| {model} | {name} | {row['sets']} | {row['equal']} | {row['sizes']} | {row['gap']:.1e} |")
    total = {key: sum(row[key] for row in counts.values()) for key in ("sets", "equal", "sizes", "short")}
    print(f"\nin all: {total['equal']} of {total['sets']} sets equal, {total['sizes']} of equal size;")
    print(f"layers where kvpress's float noise keeps one token less than asked: {total['short']}")
    compare_allocations(json.loads((folder / "allocation.json").read_text()))
    print("kvpress side:", json.loads((folder / "versions.json").read_text()))
    print("kvbench side:", versions("kvbench", "transformers", "torch"))


def tally(row: dict, ours: torch.Tensor, theirs: torch.Tensor, scores: torch.Tensor) -> None:
    """Count equal kept sets [heads, k]; where they part, how far apart kvpress scores what was exchanged.

    The gap is relative to the largest of these scores: 0 is a tie, about 1e-7 is float32's own rounding.
    """
    for mine, other, score in zip(ours, theirs, scores, strict=True):
        row["sets"] += 1
        row["sizes"] += len(mine) == len(other)
        mine, other = set(mine.tolist()), set(other.tolist())
        row["equal"] += mine == other
        if mine != other:
            exchanged = score[sorted(mine ^ other)]
            row["gap"] = max(row["gap"], float((exchanged.max() - exchanged.min()) / exchanged.abs().max()))


def build_method(kind: str, options: dict):
    """kvbench's counterpart of a press."""
    from kvbench.methods import (
        TOVA,
        ColumnSums,
        Eviction,
        ExpectedAttention,
        KeyDiff,
        KNorm,
        LagKV,
        Pyramid,
        StreamingLLM,
        Uniform,
        WindowAttention,
    )

    if kind == "streaming_llm":
        return StreamingLLM(sinks=options["sinks"])
    if kind == "lagkv":
        return LagKV(sinks=options["sinks"], lag=options["lag"])
    if kind == "tova":  # kvpress always keeps the last token, which TOVA does not
        return TOVA(scoring=WindowAttention(window=1, kernel=1))
    if kind in ("knorm", "keydiff", "expected"):
        scoring = {"knorm": KNorm, "keydiff": KeyDiff, "expected": ExpectedAttention}[kind](**options)
        return Eviction(scoring=scoring)
    if kind == "observed":
        return Eviction(scoring=ColumnSums(recent=0, score="mean"))
    scoring = WindowAttention(window=options["window"], kernel=options["kernel"], pooling="avg")
    allocation = Pyramid(beta=options["beta"], alloc="kvpress") if kind == "pyramidkv" else Uniform()
    return Eviction(allocation=allocation, scoring=scoring)


def build_state(tensors: dict, layer: int, rope):
    """kvbench's layer state from kvpress's tensors."""
    from kvbench.ops.column_sums import column_sums
    from kvbench.prefill import LayerState
    from kvbench.prefill.query_moments import query_moments

    queries, keys, values = (tensors[f"{layer}/{name}"] for name in ("queries", "keys", "values"))
    scaling = keys.shape[2] ** -0.5
    sums, lse = column_sums(queries, keys, scaling)
    state = LayerState(keys, values, scaling, len(queries), rope, queries, sums, lse, index=layer)
    state.query_moments = {4: query_moments(queries, rope, 4)}
    return state


def kept_channels(state, share: float) -> torch.Tensor:
    """Which channels of its older keys ThinK keeps, bool [heads, head_dim]."""
    from kvbench.methods import ThinK
    from kvbench.methods.selection import Selection
    from kvbench.ops.bits import unpack_bits

    cache = ThinK(share=share).store(state, Selection.everything(state))
    return unpack_bits(cache.channels, state.keys.shape[2])


def kept_positions(method, state, layers: int, budget: int) -> torch.Tensor:
    """Positions [heads, k] that a method of kvbench keeps."""
    from kvbench.methods import Eviction

    if isinstance(method, Eviction):
        return method.select(state, state.index, layers, budget).indices
    return method.select(state, budget).indices


def compare_allocations(theirs: list[list[int]]) -> None:
    """Tokens per layer of alloc=kvpress against kvpress's, at whole and at fractional n * (1 - removed)."""
    from kvbench.methods import Pyramid

    whole, fraction, floored = [], [], []
    for (n, layers, removed, window, beta), row in zip(grid(), theirs, strict=True):
        asked, rule = n * (1 - removed), Pyramid(beta=beta, alloc="kvpress")
        budget = int(asked + 1e-9)  # what kvbench makes of the ratio
        if abs(asked - round(asked)) < 1e-6:
            whole.append(distance(rule.tokens(budget, n, window, layers), row))
        else:
            floored.append(distance(rule.tokens(budget, n, window, layers), row))
            fraction.append(distance(map(round, rule.tokens(asked, n, window, layers)), row))
    for what, apart in {"whole": whole, "fractional": fraction, "fractional, floored": floored}.items():
        within = [sum(distance <= most for distance in apart) for most in (0, 1, 2)]
        print(f"allocations at {what} budgets: {len(apart)}; apart by 0, at most 1, at most 2 tokens: {within}")


def distance(ours, theirs) -> int:
    """The most tokens by which two allocations differ in a layer."""
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    steps = {"prompts": prompts, "press": press, "compare": compare}
    parser = script_parser(__doc__)
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder", type=Path, help="where the three steps leave files for each other")
    arguments = parser.parse_args()
    steps[arguments.step](arguments.folder)


if __name__ == "__main__":
    main()
