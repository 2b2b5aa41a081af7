"""KVzip by heads: what the released code keeps of a context by its released scores of heads."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from kvbench.methods import AroundContext, Eviction, WholeHeads
from kvbench.prefill import LayerState
from scripts.compare.parity import checkout
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.kvzip import places

# As the released code names them: Qwen2.5-7B has two files, whose larger scores it takes.
MODELS = ("Llama-3.1-8B", "Qwen2.5-7B", "Qwen2.5-14B")
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
LENGTHS = ((1, 101), (40, 333), (17, 1000))  # tokens of the prefix and of the context


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    wrapper, classes = checkout.load(root, file), checkout.load(root, "attention/score.py")
    functions = "load_head_score, _threshold"
    row = Agreement(project, checkout.commit(root), functions, "kvzip_head_paper", "bfloat16", "released", "heads")
    for model, (prefix, context) in product(MODELS, LENGTHS):
        with (
            chdir(root),
            patch.object(torch.Tensor, "cuda", lambda self: self),
            patch.object(torch, "load", partial(torch.load, map_location="cpu")),
        ):
            scores = wrapper.load_head_score(model, context)  # [layers, 1, heads, context]
        with tempfile.TemporaryDirectory() as folder:
            ours = os.path.join(folder, "scores.pt")
            torch.save(scores[:, 0, :, 0].clone(), ours)
            for ratio in RATIOS:
                valid, _ = classes.KVScore()._threshold(scores, ratio)
                theirs = valid[:, 0].flatten(0, 1)
                kept = by_heads(ours, len(scores), scores.shape[2], prefix, context, ratio)
                example = f"{model}, {context} tokens, ratio {ratio}"
                row.tally(places(kept), places(theirs), scores[:, 0].flatten(0, 1), example)
    yield row


def by_heads(file: str, layers: int, heads: int, prefix: int, context: int, ratio: float) -> Tensor:
    """Which tokens of the context each head of each layer keeps, bool [layers · heads, context]."""
    method, n, masks = Eviction(scoring=AroundContext(), heads=WholeHeads(file, "official")), prefix + context, []
    for index in range(layers):
        keys = torch.zeros(heads, n, 2)
        layer = LayerState(keys, keys, 1.0, heads, index=index, num_layers=layers, context=(prefix, n))
        mask = method.select(layer, index, layers, ratio * n).mask(layer)[:, 0]
        assert mask[:, :prefix].all()
        masks.append(mask[:, prefix:])
    return torch.cat(masks)
