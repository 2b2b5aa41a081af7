"""kvpress's KeyRerotationPress.rerotate_keys against Rerotated: the keys that are stored.

kvpress's stand from position 0 and the next token follows them; kvbench's stand right before the next token's true
position. Distances are equal, and kvbench's keys are turned back for the comparison.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama

from kvbench.methods import Rerotated, Selection
from kvbench.ops.rope import Rope
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import ROUNDING, Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.cur import SHARES, prompts, random_layers
from scripts.compare.parity.tensors import DTYPES


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {
        "kvpress_presses_base_press": SimpleNamespace(BasePress=object),
        "kvpress_presses_scorer_press": SimpleNamespace(ScorerPress=object),
        "kvpress_utils": SimpleNamespace(compute_n_kept=None),
    }
    rerotate, version = load(root, file, **parts).KeyRerotationPress.rerotate_keys, commit(root)
    for dtype, (source, layers) in product(DTYPES, (("random", random_layers), ("SmolLM2-135M", prompts))):
        row = Agreement(project, version, "KeyRerotationPress.rerotate_keys", "Rerotated", dtype, source, "stored keys")
        for (seed, layer), part in product(enumerate(layers(DTYPES[dtype])), SHARES):
            heads, n, head_dim = layer.keys.shape
            embedding = modeling_llama.LlamaRotaryEmbedding(
                LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim)
            )
            rope = Rope(embedding, modeling_llama.apply_rotary_pos_emb)
            generator = torch.Generator().manual_seed(seed)
            indices = torch.rand(heads, n, generator=generator).argsort(dim=1)[:, : max(1, int(part * n))]
            indices = indices.sort(dim=1).values
            module = SimpleNamespace(rotary_emb=embedding, head_dim=head_dim)
            state = LayerState(layer.keys, layer.values, head_dim**-0.5, len(layer.queries), rope)
            k = indices.shape[1]
            stored = Rerotated().store(state, Selection(indices, k)).k.view[0, :, :k].float()
            ours = rope.rotate(stored, torch.full((k,), k - n))
            theirs = rerotate(module, indices[None], layer.keys[None])[0].float()
            exact = rerotate(module, indices[None], layer.keys[None].float())[0]
            size = exact.norm(dim=-1)
            gap, exact_gap = ((ours - other).norm(dim=-1) / size for other in (theirs, exact))
            near = gap <= ROUNDING
            ulp = exact_gap <= torch.finfo(layer.keys.dtype).eps  # the last digit of the dtype
            row.cases += 1
            row.compared += gap.numel()
            row.equal += int((gap == 0).sum())
            row.rounding += int((near & (gap > 0)).sum())
            row.dtype_rounding += int((~near & ulp).sum()) if dtype != "float32" else 0
            row.different += int((~near & ~ulp).sum()) if dtype != "float32" else int((~near).sum())
            row.largest_gap = max(row.largest_gap, float(gap[near].max()) if near.any() else 0.0)
        yield row
