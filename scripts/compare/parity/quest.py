"""Quest's pages of a decoded token: the released attention of the accuracy tables, its choice and its output."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.cache.paged import PagedLayer
from kvbench.methods import Quest
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import attention_module
from scripts.compare.parity.tensors import DTYPES, Layer, sources

PAGES, BUDGETS = (16, 32), (64, 128, 256, 512)
LENGTHS = (300, 513, 1601)
ALLOWED = {"float32": 2e-5, "bfloat16": 3e-2}  # of an output, relative to the largest of its head


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    module.apply_rotary_pos_emb = lambda queries, keys, *args: (queries, keys)  # the tensors are after RoPE
    for name, dtype in DTYPES.items():
        for label, source in sources(dtype, LENGTHS, real=(300, 900), head_dim=64):
            sets, outputs = (
                Agreement(
                    project, version, "forward of a decoded token", "Quest, last_page=competes", name, label, unit
                )
                for unit in ("page sets", "outputs")
            )
            for number, (layer, page, budget) in enumerate(product(source, PAGES, BUDGETS)):
                if budget < layer.n - 1:
                    example = f"case {number}, n={layer.n}, page={page}, budget={budget}"
                    compare(module, layer, page, budget, sets, outputs, example)
            yield from (sets, outputs)


def compare(
    module: ModuleType, layer: Layer, page: int, budget: int, sets: Agreement, outputs: Agreement, example: str
) -> None:
    """The layer's last query and key are those of the decoded token; values are the keys of the token before."""
    values = layer.keys.roll(1, dims=1)
    theirs, scores, output = released(module, layer.queries[:, -1:], layer.keys, values, page, budget)

    def exact() -> tuple[Tensor, Tensor]:
        wide = (x.float() for x in (layer.queries[:, -1:], layer.keys, values))
        return released(module, *wide, page, budget)[:2]

    prompt = LayerState(layer.keys[:, :-1], values[:, :-1], 1.0, len(layer.queries))
    cache = Quest(page=page, dense_layers=0, last_page="competes").compress_layer(prompt, 0, 1, budget)
    assert isinstance(cache, PagedLayer)
    cache.update(layer.keys[None, :, -1:], values[None, :, -1:])
    query = layer.queries[None, :, -1:]
    ours = cache.choose(query).flatten(0, 1).sort(dim=1).values
    sets.tally(ours, theirs, scores, example, exact)
    mine = cache.attend(query, layer.keys.shape[2] ** -0.5)[0, :, 0]
    apart = (mine.float() - output.float()).abs().amax(dim=1) / output.float().abs().amax(dim=1)
    equal = (ours == theirs).all(dim=1)  # else they attend to other pages
    outputs.cases += 1
    outputs.compared += int(equal.sum())
    within = equal & (apart <= ALLOWED[layer.dtype])
    if layer.dtype == "float32":
        outputs.rounding += int(within.sum())
    else:
        outputs.dtype_rounding += int(within.sum())
    outputs.different += int((equal & ~within).sum())
    outputs.largest_gap = max([outputs.largest_gap, *apart[equal].tolist()])


def released(module: ModuleType, query: Tensor, keys: Tensor, values: Tensor, page: int, budget: int):
    """Pages of each query head [heads, k], ascending, the scores of all pages [heads, pages], and the output."""
    this = attention_module(query, keys[:, -1:], values[:, -1:])
    this.layer_id, this.chunk_size, this.token_budget = 2, page, budget
    past = (keys[None, :, :-1], values[None, :, :-1])
    masks, choose = [], module.local_heavy_hitter_mask

    def recorded(*args):
        masks.append(choose(*args))
        return masks[-1]

    module.local_heavy_hitter_mask = recorded
    position = torch.tensor([[keys.shape[1] - 1]])
    with recorded_topk() as scores:
        output, *_ = module.forward(this, torch.zeros(1, 1, 1), position_ids=position, past_key_value=past)
    module.local_heavy_hitter_mask = choose
    chosen = masks[0][0, :, 0, ::page]  # the first token of each page
    return chosen.nonzero()[:, 1].view(len(query), -1), scores[0][0, :, 0], output.view(len(query), -1)
