"""Settings in one batch against each alone, and one device against another."""

import torch

from kvbench.evaluation.decode import batched, decode_greedily, generate
from kvbench.evaluation.settings import Setting
from scripts.benchmarks.gpu.models import token_ids
from scripts.benchmarks.gpu.presets import STEPS

MIXED = ("full", "streaming_llm", "snapkv", "pyramidkv", "adakv", "kivi", "spindle", "knorm")


@torch.inference_mode()
def against_alone(settings: list[Setting], model, n: int) -> dict:
    """Whether each setting decodes in a batch the tokens that it decodes alone; rounding may change a close call."""
    ids, layers = token_ids(n, model.config.vocab_size), len(model.model.layers)
    caches, logits, alone = [], [], {}
    for one in settings:
        budget = one.budget_at(n, layers)
        state = one.method.plan(n, layers, budget).run(model, ids, one.method.needs)
        alone[one.name] = generate(model, one.method.compress(state, budget), state.logits, STEPS, frozenset())
        caches.append(one.method.compress(state, budget))
        logits.append(state.logits)
    together = decode_greedily(model, batched(caches), torch.stack(logits), STEPS, frozenset())
    found = zip(alone.items(), together, strict=True)
    return {"different": [name for (name, a), b in found if differ(a.tokens, b.tokens, a.close_call)]}


def differ(a: list[int], b: list[int], close_call: int | None) -> bool:
    """Whether tokens differ before the first one that rounding could change."""
    end = len(a) if close_call is None else close_call
    return a[:end] != b[:end]
