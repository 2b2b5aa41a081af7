"""SnapKV, PyramidKV, H2O and StreamingLLM as KVCache-Factory (today and before) and SnapKV's repository have them.

Their classes have one interface: `update_kv` takes queries, keys and values of a prompt and returns the kept ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.methods import H2O, ColumnSums, Eviction, Method, Pyramid, StreamingLLM, WindowAttention
from parity import tensors
from parity.agreement import Agreement, recorded_topk
from parity.checkout import commit, load
from parity.tensors import LAYOUTS, Layer, random_layer, real_layers

POOLS = {"max": "maxpool", "avg": "avgpool"}
BUDGETS = (64, 128, 512, 1024, 2048)
MOST = 4200  # tokens; H2O, which holds n × n attention, takes no more than a third
LAYERS = {30: (0, 13, 29), 32: (0, 1, 16, 31)}  # depths, and the layers of them that random tensors stand for


@dataclass(frozen=True)
class Setting:
    """A released class with its options, and the kvbench method with the same ones."""

    cluster: str
    method: Callable[[], Method]
    window: int
    options: tuple[tuple[str, object], ...] = ()
    per_kv_head: bool = False

    def run(self, module: ModuleType, layer: Layer, budget: int, index: int, depth: int) -> tuple[Tensor, Tensor]:
        """Kept positions [heads, k] and the scores they were selected by (none where all is kept)."""
        options = dict(self.options)
        if self.cluster == "PyramidKVCluster":
            options |= {"num_hidden_layers": depth, "layer_idx": index}
        cluster = getattr(module, self.cluster)(window_size=self.window, max_capacity_prompt=budget, **options)
        keys, values = layer.keys[None], layer.positions[None]
        if not self.per_kv_head:
            keys, values = (module.repeat_kv(x, layer.group) for x in (keys, values))
        with recorded_topk() as scores:
            kept = cluster.update_kv(keys, layer.queries[None], values, None, layer.group)[1][0, :, :, 0]
        return kept.long().sort(dim=-1).values, scores[0][0] if scores else None


def settings(module: ModuleType) -> Iterator[Setting]:
    """What this version of the project has, with the choices that the papers and scripts vary."""
    grouped = hasattr(module, "_gqa_groups")  # KV heads as they are: since July 2026
    window_choices = list(product((8, 32), (5, 7), ("max", "avg")))
    for window, kernel, pooling in window_choices:
        scoring = partial(WindowAttention, window=window, kernel=kernel, pooling=pooling)
        options = (("kernel_size", kernel), ("pooling", POOLS[pooling]))
        for cluster, beta in (("SnapKVCluster", None), ("PyramidKVCluster", 20), ("PyramidKVCluster", 14)):
            if hasattr(module, cluster):
                shape = {"allocation": Pyramid(beta=beta, alloc="official")} if beta else {}
                with_beta = (*options, ("beta", beta)) if beta else options
                yield from _granularities(cluster, Eviction, shape, scoring, window, with_beta, grouped)
    for window in (8, 32):
        if hasattr(module, "H2OKVCluster"):
            yield from _granularities("H2OKVCluster", H2O, {}, partial(ColumnSums, recent=window), window, (), grouped)
        if hasattr(module, "StreamingLLMKVCluster"):
            yield Setting("StreamingLLMKVCluster", partial(StreamingLLM, sinks=None, recent=window), window)


def _granularities(cluster, kind, shape, scoring, window, options, grouped) -> Iterator[Setting]:
    def method(**choices):
        return kind(scoring=scoring(), **shape, **choices)

    yield Setting(cluster, partial(method, granularity="query_head"), window, options)
    if grouped:
        for reduce in ("mean", "max", "sum"):
            reduced = (*options, ("gqa_score_agg", reduce))
            yield Setting(cluster, partial(method, group_reduce=reduce), window, reduced, per_kv_head=True)


def lengths(budget: int, window: int) -> list[int]:
    """Prompt lengths on both sides of every branch of the released code, and long ones."""
    c = budget - window
    around = {budget - 1, budget, budget + 1, 2 * c - 1, 2 * c, 2 * c + 1, 2 * c + window}
    return sorted(n for n in {*around, 3 * budget, 1500} if window < n <= MOST)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    """All rows of one version of the project."""
    module, version = load(root, file), commit(root)
    for dtype in tensors.DTYPES:
        for setting_rows in (random_rows, real_rows):
            rows: dict[tuple, Agreement] = {}
            setting_rows(module, dtype, rows)
            yield from (replace(row, project=project, commit=version) for row in rows.values())
    if hasattr(module, "PyramidKVCluster"):
        yield replace(allocations(module), project=project, commit=version)


def random_rows(module: ModuleType, dtype: str, rows: dict[tuple, Agreement]) -> None:
    for number, setting in enumerate(settings(module)):
        for budget, (at, layout) in product(BUDGETS, enumerate(LAYOUTS)):
            if setting.per_kv_head and layout == "MHA":
                continue  # the released code takes its other branch there
            most = MOST // 3 if setting.cluster == "H2OKVCluster" else MOST
            options = [n for n in lengths(budget, setting.window) if n <= most]
            for n in options[(number + at) % 2 :: 2]:  # half of them, all over the layouts
                layer = random_layer(layout, n, tensors.DTYPES[dtype], seed=number + n)
                depths = LAYERS[32] if setting.cluster == "PyramidKVCluster" else (0,)
                for index in depths[number % 2 :: 2] if len(depths) > 1 else depths:
                    compare(module, setting, layer, budget, index, 32, rows)


def real_rows(module: ModuleType, dtype: str, rows: dict[tuple, Agreement]) -> None:
    for index, layer in real_layers((300, 1200), tensors.DTYPES[dtype]):
        for number, (setting, budget) in enumerate(product(settings(module), BUDGETS[:4])):
            if (number + index) % 3 == 0:
                compare(module, setting, layer, budget, index, 30, rows)


def compare(module, setting: Setting, layer: Layer, budget: int, index: int, depth: int, rows: dict) -> None:
    theirs, scores = setting.run(module, layer, budget, index, depth)
    state = layer.state(column_sums=setting.cluster == "H2OKVCluster")
    ours = setting.method().compress_layer(state, index, depth, budget).v.view[0, :, :, 0].long()
    if setting.cluster == "StreamingLLMKVCluster" or len(ours) < len(theirs):
        theirs, ours = (x[:1].expand(len(layer.keys), -1) if len(set(map(tuple, x.tolist()))) == 1 else x
                        for x in (theirs, ours))  # fmt: skip
    heads = "per KV head" if setting.per_kv_head else "per query head"
    key = (setting.cluster, heads, layer.dtype, layer.source.split()[0])
    if key not in rows:
        method = setting.method()
        name = type(method).__name__ + (", alloc=official" if setting.cluster == "PyramidKVCluster" else "")
        rows[key] = Agreement("", "", f"{setting.cluster}.update_kv, {heads}", name, layer.dtype, key[3])
    example = f"{layer.source}, n={layer.n}, budget={budget}, window={setting.window}, {dict(setting.options)}, " + (
        f"layer {index} of {depth}"
    )
    exact = partial(setting.run, module, layer.float(), budget, index, depth) if layer.dtype != "float32" else None
    rows[key].tally(ours, theirs, scores, example, exact)


def allocations(module: ModuleType) -> Agreement:
    """Tokens of every layer, on a grid of prompt lengths, depths, budgets, windows and betas."""
    row = Agreement("", "", "PyramidKVCluster.update_kv, sizes", "Pyramid, alloc=official", "float32", "grid", "layers")
    sizes = (100, 130, 250, 500, 777, 1000, 2048, 3000, 4096, 8000)
    for n, depth, budget, window, beta in product(
        sizes, (2, 26, 30, 32, 80), (64, 96, *BUDGETS[1:]), (8, 32), (20, 14)
    ):
        if n < budget:
            continue
        layer = Layer("grid", torch.zeros(1, n, 1), torch.zeros(1, n, 1))
        row.cases += 1
        planned = Pyramid(beta=beta, alloc="official").tokens(budget, n, window, depth) if n > budget else [n] * depth
        for index, ours in enumerate(planned):
            setting = Setting("PyramidKVCluster", Eviction, window, (("beta", beta), ("kernel_size", 1)))
            theirs = setting.run(module, layer, budget, index, depth)[0].shape[1]
            row.compared += 1
            row.equal += ours == theirs
            row.different += ours != theirs
            if ours != theirs and len(row.examples) < 5:
                row.examples.append(f"n={n}, {depth} layers, B={budget}, w={window}, beta={beta}, layer {index}: "
                                    f"{ours} and {theirs}")  # fmt: skip
    return row
