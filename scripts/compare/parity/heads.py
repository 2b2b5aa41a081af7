"""AdaKV and HeadKV as their released classes have them: kept tokens of every head, and how many these are.

`update_kv` returns the kept tokens of all heads behind each other; `head_lens` says how many each head has. HeadKV's
class reads the released importance of Llama-3-8B's 32 · 32 heads.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from torch import Tensor

from kvbench.methods import AdaKV, Eviction, HeadKV, Pyramid, Uniform, WindowAttention
from scripts.compare.parity import tensors
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer

BUDGETS = (40, 64, 128, 256)
LENGTHS = (180, 700)
WINDOW, KERNEL, DEPTH = 32, 7, 32
LAYERS = (0, 15, 31)
SCORES = "Important_Head/head_score/Meta-Llama-3-8B-Instruct_retrieval_reasoning_heads.json"


def adakv(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for dtype, layout, pyramid in product(tensors.DTYPES, LAYOUTS, (False, True)):
        ours = "AdaKV, rounding=official" + (", Pyramid, alloc=adakv" if pyramid else "")
        row = Agreement(project, version, "AdaptiveSnapKVCluster", ours, dtype, f"random {layout}")
        for number, (n, budget, alpha, index, grouped) in enumerate(
            product(LENGTHS, BUDGETS, (0.2, 0.5), LAYERS, (True, False))
        ):
            if budget >= n:
                continue
            layer = random_layer(layout, n, tensors.DTYPES[dtype], seed=number)
            options = {"gqa_support": grouped, "num_key_value_groups": layer.group, "gqa_func": "mean"}
            options |= {"pyram_mode": pyramid, "layer_idx": index, "num_hidden_layers": DEPTH, "skip": 0}

            def released(layer: Layer, budget=budget, alpha=alpha, options=options) -> tuple[list[Tensor], Tensor]:
                cluster = module.AdaptiveSnapKVCluster(
                    WINDOW, KERNEL, "maxpool", budget, alpha, normalize=False, **options
                )
                return run(module, cluster, layer, layer.keys, layer.positions)

            method = Eviction(
                Pyramid(alloc="adakv") if pyramid else Uniform(),
                WindowAttention(WINDOW, KERNEL),
                "kv_head" if grouped else "query_head",
                heads=AdaKV(alpha, rounding="official"),
            )
            count(row, method, layer, index, budget, released, f"n={n}, B={budget}, alpha={alpha}, layer {index}")
        yield row


def headkv(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    LAYOUTS["32 heads"] = (32, 8)
    for dtype in tensors.DTYPES:
        ours = "HeadKV, surplus=waste"
        row = Agreement(project, version, "ReasonSnapKVCluster", ours, dtype, "random, 32 query heads")
        for number, (n, budget, beta, index) in enumerate(product(LENGTHS, BUDGETS, (1.005, 1.2, 2, 10), LAYERS)):
            if budget >= n:
                continue
            layer = random_layer("32 heads", n, tensors.DTYPES[dtype], seed=number)

            def released(layer: Layer, budget=budget, beta=beta, index=index) -> tuple[list[Tensor], Tensor]:
                cluster = module.ReasonSnapKVCluster(
                    8, KERNEL, "maxpool", budget, "reason", beta, 1, index, DEPTH, 32, "llama"
                )
                keys, values = (x.repeat_interleave(layer.group, 0) for x in (layer.keys, layer.positions))
                return run(module, cluster, layer, keys, values)

            heads = HeadKV(str(root / SCORES), float(beta), "waste")
            method = Eviction(scoring=WindowAttention(8, KERNEL), granularity="query_head", heads=heads)
            count(row, method, layer, index, budget, released, f"n={n}, B={budget}, beta={beta}, layer {index}")
        yield row


def run(module, cluster, layer: Layer, keys: Tensor, values: Tensor) -> tuple[list[Tensor], Tensor]:
    """Kept positions of each head, ascending, and the scores [heads, context] that they were selected by."""
    kept = cluster.update_kv(keys[None], layer.queries[None], values[None])[1][:, 0]
    every = keys if len(keys) == len(layer.queries) else keys.repeat_interleave(layer.group, 0)
    scores = cluster.calcul_attn_sore(every[None], layer.queries[None])[0]
    heads = kept.long().split(cluster.head_lens.tolist())
    return [head.sort().values for head in heads], scores


def count(row: Agreement, method: Eviction, layer: Layer, index: int, budget: int, released, example: str) -> None:
    state = layer.state()
    state.index, state.num_layers = index, DEPTH
    selection = method.select(state, index, DEPTH, budget)
    ours = [head.nonzero()[:, 0] for head in selection.mask(state).flatten(0, 1)]
    theirs, scores = released(layer)
    row.tally(ours, theirs, scores, example, lambda: released(layer.float()))
