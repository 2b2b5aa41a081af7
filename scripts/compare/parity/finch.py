"""kvpress's FinchPress against Finch: the tokens that KV heads keep, of the whole prompt and chunk after chunk.

Both are given the same causal attention of the window, in float32. In chunks the press counts the window among the
tokens of the last one; prompts here are cut to whole chunks and the window, which is the press's last chunk and is not
compared.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import Eviction, Finch
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import DTYPES, Layer, sources

WINDOW, CHUNK = 16, 100
LENGTHS, REAL = (230, 530), (350, 700)
REMOVED = (0.1, 0.5, 0.7, 0.8)  # kvpress's compression_ratio; its chunks must hold the window


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {
        "kvpress_presses_base_press": SimpleNamespace(BasePress=object),
        "kvpress_presses_key_rerotation_press": SimpleNamespace(KeyRerotationPress=None),
        "kvpress_presses_snapkv_press": SimpleNamespace(SnapKVPress=None),
    }
    press, version = load(root, file, **parts).FinchPress, commit(root)
    for (name, dtype), chunk in product(DTYPES.items(), (None, CHUNK)):
        for label, layers in sources(dtype, LENGTHS, REAL, 64):
            row = Agreement(project, version, "FinchPress", f"Finch, chunk={chunk or 'null'}", name, label)
            for layer, removed in product(map(whole_chunks, layers), REMOVED):
                made = press(compression_ratio=removed, chunk_length=chunk, rerotate_keys=False)
                made.window_size = WINDOW
                theirs, scores = released(made, layer)
                budget = theirs.shape[1]
                if budget > WINDOW:
                    method = Eviction(scoring=Finch(WINDOW, chunk))
                    kept = method.select(layer.state(), 0, 1, budget).indices
                    row.tally(kept, theirs, scores, f"{layer.source}, n={layer.n}, removed {removed}")
            yield row


def whole_chunks(layer: Layer) -> Layer:
    """The layer's first tokens, a window more than whole chunks."""
    n = WINDOW + (layer.n - WINDOW) // CHUNK * CHUNK
    return Layer(layer.source, layer.queries[:, :n], layer.keys[:, :n])


def released(press: object, layer: Layer) -> tuple[Tensor, Tensor]:
    """The kept tokens [heads, k], and the scores of all of them."""
    heads, n, head_dim = layer.keys.shape
    queries = layer.queries[:, -WINDOW:].float().unflatten(0, (heads, -1))
    logits = queries @ layer.keys[:, None].float().mT * head_dim**-0.5
    later = torch.arange(n) > torch.arange(n - WINDOW, n)[:, None]
    attention = logits.masked_fill(later, float("-inf")).softmax(dim=-1).flatten(0, 1)[None]
    module = SimpleNamespace(config=SimpleNamespace(num_attention_heads=len(layer.queries)), head_dim=head_dim)
    positions = digits(torch.arange(n), head_dim, torch.float32).expand_as(layer.keys)[None]
    arguments = module, None, layer.keys[None].float(), positions, attention, {}
    kept = undigits(press.compress(*arguments)[1][0]).sort(dim=1).values
    scores = press.score(module, None, layer.keys[None].float(), positions, attention, {})[0]
    if press.chunk_length is None:
        return kept, scores
    window = torch.arange(n - WINDOW, n).expand(heads, -1)
    tokens = [torch.cat([row[row < n - WINDOW], tail]) for row, tail in zip(kept, window, strict=True)]
    return torch.stack(tokens), scores
