"""NACL's released `kvcache_eviction` against NACL: the tokens that every query head keeps, given the same noise.

The released function calls paddle, of which this module has the few operations that it needs. Its attention is causal
here, as kvbench's is, and its draw takes the largest of log-probability and kvbench's noise; what it drops, keeps and
draws from is its own.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
from torch import Tensor

from kvbench.methods import NACL, Eviction
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import DTYPES, Layer, sources

LENGTHS, REAL = (200, 500), (300, 700)
SINKS, RECENT = 4, (0.04, 0.1)  # tokens; share of the prompt, sinks among it
KEPT, DRAWN = (0.12, 0.3), (0.0, 0.07, 0.2)  # shares of the prompt by attention and at random


class PaddleTensor(Tensor):
    """A tensor whose `transpose` takes the order of all dimensions, as paddle's does."""

    def transpose(self, order: tuple[int, ...]) -> Tensor:
        return self.permute(order)


class Paddle:
    """The operations that `kvcache_eviction` calls."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None
        self._C_ops = SimpleNamespace(flash_attn=lambda *_: (None,) * 4)
        flash = SimpleNamespace(calc_reduced_attention_scores=self.summed)
        self.nn = SimpleNamespace(functional=SimpleNamespace(flash_attention=flash))

    def summed(self, queries: Tensor, keys: Tensor, _) -> Tensor:
        """Causal attention summed over queries, [1, heads, 1, n]."""
        of_heads = (x.as_subclass(Tensor)[0].transpose(0, 1) for x in (queries, keys))
        state = Layer("", *of_heads).state()
        self.scores = state.window_votes(queries.shape[1])
        return self.scores[None, :, None]

    topk = staticmethod(torch.topk)

    @staticmethod
    def to_tensor(index: list[numpy.ndarray]) -> Tensor:
        return torch.from_numpy(numpy.stack(index))

    @staticmethod
    def take_along_axis(x: Tensor, index: Tensor, axis: int) -> Tensor:
        return x.gather(axis, index.expand(-1, -1, -1, x.shape[3]))


class Numpy:
    """numpy, with a draw that takes the largest of log-probability and given noise [heads, n - recent]."""

    def __init__(self, noise: numpy.ndarray):
        rows = iter(noise[:, SINKS:])

        def choice(tokens: numpy.ndarray, size: int, replace: bool, p: numpy.ndarray) -> numpy.ndarray:
            order = numpy.argsort(-(numpy.log(p) + next(rows)[tokens]), kind="stable")
            return tokens[order[:size]]

        self.random = SimpleNamespace(choice=choice)

    def __getattr__(self, name: str) -> object:
        return getattr(numpy, name)


def softmax(scores: numpy.ndarray) -> numpy.ndarray:
    return torch.from_numpy(scores).double().softmax(0).numpy()


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for name, dtype in DTYPES.items():
        for source, layers in sources(dtype, LENGTHS, REAL, 16):
            row = Agreement(project, version, "kvcache_eviction", "NACL", name, source)
            row.note = "causal attention and the same noise on both sides"
            for layer, recent, kept, drawn in product(layers, RECENT, KEPT, DRAWN):
                compare(row, module, layer, recent, kept, drawn)
            yield row


def compare(row: Agreement, module: object, layer: Layer, recent: float, kept: float, drawn: float) -> None:
    n, window = layer.n, int(recent * layer.n) - SINKS
    heads, group = len(layer.queries), layer.group
    options = {
        "proxy_tokens_ratio": (window + 0.5) / n,
        "sink_tokens": SINKS,
        "proxy_token_keep_ratio": kept,
        "random_token_keep_ratio": drawn,
        "token_protect_ratio": recent,
    }
    chosen = int(drawn * n), int(kept * n)
    noise = numpy.random.default_rng([0, 0, n]).gumbel(size=(heads, n - window))
    paddle = Paddle()
    module.np, module.paddle = Numpy(noise), paddle
    module.scipy = SimpleNamespace(special=SimpleNamespace(softmax=softmax))
    keys = layer.keys.repeat_interleave(group, dim=0).transpose(0, 1)[None]
    positions = digits(torch.arange(n), keys.shape[3], torch.float32)[None, :, None].expand(keys.shape)
    config = SimpleNamespace(config=SimpleNamespace(kvcache_eviction=options))
    arguments = (x.as_subclass(PaddleTensor) for x in (layer.queries.transpose(0, 1)[None], keys, positions))
    _, values = module.kvcache_eviction(config, *arguments)
    theirs = undigits(values.as_subclass(Tensor)[0].transpose(0, 1))
    share = (chosen[0] + 0.5) / sum(chosen) if chosen[0] else 0.0
    method = Eviction(scoring=NACL(window, SINKS, share), granularity="query_head")
    mine = method.select(layer.state(), 0, 1, theirs.shape[1]).indices
    scores = torch.cat([paddle.scores[:, : n - window].double() + noise, paddle.scores[:, n - window :]], dim=1)
    row.tally(mine, theirs, scores, f"{layer.source}, n={n}, {recent}, {kept}, {drawn}")
