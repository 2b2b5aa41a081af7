"""How much other CPU kernels change the scores at an eviction's cut: the measurement behind `close_cuts`.

The same prompts are read with torch's own choice of kernels and with the plainest ones. At the cut of every layer and
head, between the last token kept and the first dropped, the gaps between neighbouring scores are compared, in units of
eps · |score at the cut|, with eps of the model's dtype.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import Tensor

from kvbench.configuration.conf import composed
from kvbench.methods import Eviction
from kvbench.prefill import prefill
from kvbench.utils.targets import build
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
DTYPES = (torch.float32, torch.bfloat16)
METHODS = ("knorm", "keydiff", "h2o", "snapkv", "pyramidkv", "expected_attention", "criticalkv_snapkv", "rkv", "adakv")
RIVALS = 3  # scores on either side of the cut


def scores_of(method: Eviction, model: torch.nn.Module, ids: Tensor, budget: int) -> Iterator[tuple[Tensor, int]]:
    """The scores [heads, len] of each layer, and how many of them each head keeps."""
    state = prefill(model, ids, method.needs)
    window = method.scoring.protected(budget)
    for index, layer in enumerate(state.layers):
        tokens = method.budgets.of_layer(layer, index, len(state.layers), budget)
        yield method.scores(layer, window).float(), tokens - window


@torch.inference_mode()
def measure(length: int, ratio: float) -> dict[str, dict[str, list[tuple[Tensor, int]]]]:
    """dtype -> method -> scores."""
    loaded = embedded_model()
    ids = needle_prompt(loaded, length)
    scores = {}
    for dtype in DTYPES:
        model = loaded.model.to(dtype)
        configured = composed([f"method=[{','.join(METHODS)}]"])["method"]
        methods = {name: build(configured[name], name, Eviction) for name in METHODS}
        scores[str(dtype).removeprefix("torch.")] = {
            name: list(scores_of(method, model, ids, int(ratio * len(ids)))) for name, method in methods.items()
        }
    return scores


def changes(usual: list[tuple[Tensor, int]], plain: list[tuple[Tensor, int]], eps: float) -> dict:
    """Of all heads of all layers: how the gaps at the cut change, and how many cuts choose other tokens."""
    units, turned, heads = [], 0, 0
    for (mine, kept), (other, _) in zip(usual, plain, strict=True):
        order = mine.argsort(dim=-1, descending=True, stable=True)
        near = order[:, max(kept - RIVALS, 0) : kept + RIVALS]
        cut = mine.gather(1, order[:, kept - 1 : kept]).abs()
        change = (other - mine).gather(1, near)
        units.append(((change.amax(dim=-1) - change.amin(dim=-1))[:, None] / (eps * cut)).flatten())
        chosen = [set(row.tolist()) for row in order[:, :kept]]
        again = other.argsort(dim=-1, descending=True, stable=True)[:, :kept]
        turned += sum(before != set(row.tolist()) for before, row in zip(chosen, again, strict=True))
        heads += len(mine)
    every = torch.cat(units)
    return {
        "heads": heads,
        "largest_change_of_a_gap": round(float(every.max()), 1),
        "99_percent": round(float(every.quantile(0.99)), 1),
        "median": round(float(every.median()), 2),
        "heads_that_keep_other_tokens": turned,
    }


def main() -> None:
    options = arguments(__doc__, length=600, percent=20)
    results = []
    for variables in ({}, PLAIN):
        os.environ.update(variables)  # read when a process first computes
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            results.append(pool.submit(measure, options.length, options.percent / 100).result())
    usual, plain = results
    by_dtype = {
        dtype: {
            name: changes(usual[dtype][name], plain[dtype][name], torch.finfo(getattr(torch, dtype)).eps)
            for name in METHODS
        }
        for dtype in usual
    }
    tell(
        {
            "what": "change of gaps between scores at the cut by other kernels, in units of eps · |score at the cut|",
            "kernels": PLAIN,
            "length": options.length,
            "percent_kept": options.percent,
            "rivals": RIVALS,
            "found": by_dtype,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
