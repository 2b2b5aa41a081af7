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
from scripts.compare.parity import tensors
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer, real_layers

METHODS = {
    "SnapKVCluster": "SnapKV",
    "PyramidKVCluster": "PyramidKV, alloc=official",
    "H2OKVCluster": "H2O, decode=grow",
    "StreamingLLMKVCluster": "StreamingLLM",
}
NAMES = {"future": "H2O given sums that see later tokens", "window": "SnapKV, kernel=1"}
POOLS = {"max": "maxpool", "avg": "avgpool"}
BUDGETS = (64, 128, 512, 1024, 2048)
MOST = 4200  # tokens; H2O, which holds n × n attention, takes no more than a third
LAYERS = (0, 1, 16, 31)  # of 32, which random tensors stand for


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


def settings(version: "Version") -> Iterator[Setting]:
    """What this version of the project has, with the choices that the papers and scripts vary."""
    module = version.module
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
            kind, scoring = H2O, partial(ColumnSums, recent=window)
            if version.h2o == "window":
                kind, scoring = Eviction, partial(WindowAttention, window=window, kernel=1)
            yield from _granularities("H2OKVCluster", kind, {}, scoring, window, (), grouped)
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


@dataclass(frozen=True)
class Version:
    """A loaded module, and where it parts from today's.

    h2o     what its H2O sums: "causal" attention of all queries; "future", where only the last window is masked, so
            that sums see later tokens (October 2024 to June 2026); "window", the last queries alone (before).
    more    1 where PyramidKV's step divides by m layers and not by m - 1 (June to September 2024): kvbench then
            allocates to m + 1 layers, of which m are compared.
    """

    module: ModuleType
    h2o: str
    more: int


def run(project: str, root: Path, file: str, h2o: str = "causal", more: int = 0) -> Iterator[Agreement]:
    """All rows of one version of the project; h2o and more as in `Version`."""
    version, made = Version(load(root, file), h2o, more), commit(root)
    for dtype in tensors.DTYPES:
        for cases in (random_cases, real_cases):
            rows: dict[tuple, Agreement] = {}
            for setting, layer, budget, index, depth in cases(version, dtype):
                compare(version, setting, layer, budget, index, depth, rows)
            yield from (replace(row, project=project, commit=made) for row in rows.values())
    if hasattr(version.module, "PyramidKVCluster"):
        for more_layers in sorted({0, more}):
            yield replace(allocations(version.module, more_layers), project=project, commit=made)


def random_cases(version: Version, dtype: str) -> Iterator[tuple]:
    for number, setting in enumerate(settings(version)):
        for budget, (at, layout) in product(BUDGETS, enumerate(LAYOUTS)):
            if setting.per_kv_head and layout == "MHA":
                continue  # the released code takes its other branch there
            most = MOST // 3 if setting.cluster == "H2OKVCluster" else MOST
            pyramid = setting.cluster == "PyramidKVCluster"
            every = 5 if pyramid else 3  # of the lengths, others for other layouts and settings
            for n in [n for n in lengths(budget, setting.window) if n <= most][(number + at) % every :: every]:
                layer = random_layer(layout, n, tensors.DTYPES[dtype], seed=number + n)
                yield setting, layer, budget, LAYERS[(number + n) % len(LAYERS)] if pyramid else 0, 32


def real_cases(version: Version, dtype: str) -> Iterator[tuple]:
    for index, layer in real_layers((300, 1200), tensors.DTYPES[dtype]):
        for number, (setting, budget) in enumerate(product(settings(version), BUDGETS[:4])):
            if (number + index) % 4 == 0:
                yield setting, layer, budget, index, 30


def compare(version: Version, setting: Setting, layer: Layer, budget: int, index: int, depth: int, rows: dict) -> None:
    heads = "KV head" if setting.per_kv_head else "query head"
    theirs, scores = setting.run(version.module, layer, budget, index, depth)
    pyramid, h2o = setting.cluster == "PyramidKVCluster", setting.cluster == "H2OKVCluster"
    state = layer.state(column_sums=h2o and version.h2o == "causal")
    if h2o and version.h2o == "future":
        state.column_sums = sums_with_future(layer, setting.window)
    depth_here = depth + version.more if pyramid else depth
    ours = setting.method().compress_layer(state, index, depth_here, budget).v.view[0, :, :, 0].long()
    if len(ours) < len(theirs):  # all is kept, or the same in every head: kvbench stores KV heads
        ours = ours.repeat_interleave(len(theirs) // len(ours), dim=0)
    key = (setting.cluster, heads, layer.dtype, layer.source.split()[0])
    if key not in rows:
        name = METHODS[setting.cluster]
        name += " of m + 1 layers" if pyramid and version.more else ""
        name = NAMES.get(version.h2o, name) if h2o else name
        function = f"{setting.cluster}.update_kv, per {heads}"
        rows[key] = Agreement("", "", function, name, layer.dtype, key[3])
    example = f"{layer.source}, n={layer.n}, budget={budget}, window={setting.window}, {dict(setting.options)}, " + (
        f"layer {index} of {depth}"
    )
    exact = partial(setting.run, version.module, layer.float(), budget, index, depth)
    rows[key].tally(ours, theirs, scores, example, None if layer.dtype == "float32" else exact)


def sums_with_future(layer: Layer, window: int) -> Tensor:
    """Column sums [num_attention_heads, n] of an attention that is causal among the last `window` tokens only."""
    keys = layer.keys.float().repeat_interleave(layer.group, dim=0)
    logits = layer.queries.float() @ keys.mT * layer.keys.shape[2] ** -0.5
    logits[:, -window:, -window:].masked_fill_(torch.ones(window, window, dtype=torch.bool).triu(1), float("-inf"))
    return logits.softmax(dim=-1).sum(dim=1)


def allocations(module: ModuleType, more_layers: int) -> Agreement:
    """Tokens of every layer, on a grid of prompt lengths, depths, budgets, windows and betas."""
    name = "Pyramid, alloc=official" + (" of m + 1 layers" if more_layers else "")
    row = Agreement("", "", "PyramidKVCluster.update_kv, sizes", name, "float32", "grid", "layers")
    sizes = (100, 130, 500, 777, 2048, 3000, 8000)
    for n, depth, budget, window, beta in product(
        sizes, (2, 26, 30, 32, 80), (64, 96, *BUDGETS[1:]), (8, 32), (20, 14)
    ):
        if n < budget:
            continue
        layer = Layer("grid", torch.zeros(1, n, 1), torch.zeros(1, n, 1))
        row.cases += 1
        plan = Pyramid(beta=beta, alloc="official").tokens(budget, n, window, depth + more_layers)[:depth]
        for index, ours in enumerate(plan if n > budget else [n] * depth):
            setting = Setting("PyramidKVCluster", Eviction, window, (("beta", beta), ("kernel_size", 1)))
            theirs = setting.run(module, layer, budget, index, depth)[0].shape[1]
            row.compared += 1
            row.equal += ours == theirs
            row.different += ours != theirs
            if ours != theirs and len(row.examples) < 5:
                row.examples.append(
                    f"n={n}, {depth} layers, B={budget}, w={window}, beta={beta}, layer {index}: {ours} and {theirs}"
                )
    return row
