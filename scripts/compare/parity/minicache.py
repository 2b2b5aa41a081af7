"""MiniCache as SimLayerKV's baseline (`slerp`) and KVCache-Factory (`compress_minicache_pair`) have it."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.methods import MiniCache
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES

HEADS, HEAD_DIM = 4, 64
LENGTHS = (40, 300, 1000, 1024, 1025, 2500)
SPREAD = (0.1, 0.5, 2.0)  # noise between the two layers' vectors, of the vectors' size


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    modules = (
        {}
        if "SimLayerKV" not in file
        else {"SimLayerKV_attention_llama": load(root, "LongBench/SimLayerKV_attention_llama.py")}
    )
    module, version = load(root, file, **modules), commit(root)
    released, method, function = (
        (simlayerkv, MiniCache(rule="simlayerkv", criterion="abs_cosine"), "slerp")
        if modules
        else (kvcache_factory, MiniCache(), "compress_minicache_pair, restore_minicache_pair")
    )
    for name, dtype in DTYPES.items():
        kept = Agreement(project, version, function, "MiniCache", name, "random", "retained sets")
        rows = Agreement(project, version, function, "MiniCache", name, "random", "restored rows")
        rows.note = "equal: within 1e-5 (float32) or 2^-6 (bfloat16) of a row's length; largest gap: of those"
        within = 1e-5 if name == "float32" else 2**-6
        for number, (n, spread) in enumerate(product(LENGTHS, SPREAD)):
            generator = torch.Generator().manual_seed(number)
            lower = torch.randn(HEADS, n, HEAD_DIM, generator=generator)
            upper = lower + spread * torch.randn(HEADS, n, HEAD_DIM, generator=generator)
            pair = [lower.to(dtype), (3 * upper).to(dtype)]
            theirs, scores, restored = released(module, pair)
            exact = [x.float() for x in pair]
            merged, _ = method.merge_rows(pair, method.storage.key_sequence)
            mine = torch.stack([sequence.read() for sequence in merged])
            # retained rows come back exactly; so do few merged ones, hence the count
            ours = retained(mine, pair, method.retained(n))
            kept.tally(
                ours,
                theirs,
                scores,
                f"n={n}, seed {number}",
                (lambda exact=exact: released(module, exact)[:2]) if name != "float32" else None,
            )
            comparable = torch.ones(HEADS, n, dtype=torch.bool)  # rows that both merged, or both retained
            for head, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                comparable[head, list(set(a.tolist()) ^ set(b.tolist()))] = False
            apart = (mine.float() - restored.float()).norm(dim=-1) / torch.stack(pair).float().norm(dim=-1)
            apart = apart[:, comparable]
            rows.cases, rows.compared = rows.cases + 1, rows.compared + apart.numel()
            rows.equal += int((apart <= within).sum())
            rows.different += int((apart > within).sum())
            rows.largest_gap = max(rows.largest_gap, float(apart.max()))
        yield from (kept, rows)


def retained(restored: Tensor, pair: list[Tensor], count: int) -> Tensor:
    """Positions [heads, count] of the rows that come back as they were in both layers."""
    apart = (restored - torch.stack(pair)).abs().amax(dim=(0, 3))  # [heads, n]
    return apart.sort(dim=-1, stable=True).indices[:, :count].sort(dim=-1).values


def simlayerkv(module: ModuleType, pair: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Retained positions, the scores they were chosen by, and both layers' rows [2, heads, n, head_dim]."""
    with recorded_topk() as seen:
        _, lower, upper = module.slerp(pair[0][None], pair[1][None])
    restored = torch.stack([lower[0], upper[0]])
    scores = seen[0][0, :, :, 0]
    count = 1024 if scores.shape[1] > 1024 else int(scores.shape[1] * 0.1)
    return retained(restored, pair, count), scores, restored


def kvcache_factory(module: ModuleType, pair: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    with recorded_topk() as seen:
        direction, upper, lower, _, kept_upper, kept_lower, indices = module.compress_minicache_pair(
            pair[1][None], pair[0][None]
        )
    restored = module.restore_minicache_pair(
        direction, upper, lower, current_retained=kept_upper, previous_retained=kept_lower, retained_indices=indices
    )
    return indices[0], seen[0][0], torch.stack([restored[1][0], restored[0][0]])
