"""Settings in one batch against each alone, and one device against another."""

import torch

from kvbench.evaluation.decode import batched, decode, generate
from kvbench.evaluation.settings import Setting
from scripts.benchmarks.gpu.models import budget_of, prefilled
from scripts.benchmarks.gpu.presets import STEPS

MIXED = ("full", "streaming_llm", "snapkv", "pyramidkv", "adakv", "kivi", "spindle", "knorm")


@torch.inference_mode()
def against_alone(settings: list[Setting], model, n: int) -> dict:
    """Whether each setting decodes in a batch the tokens that it decodes alone; rounding may change a close call."""
    caches, logits, alone = [], [], {}
    for setting in settings:
        state, budget = prefilled(setting, model, n), budget_of(setting, model, n)
        alone[setting.name] = generate(model, setting.method.compress(state, budget), state.logits, STEPS, frozenset())
        caches.append(setting.method.compress(state, budget))
        logits.append(state.logits)
    together = decode(model, batched(caches), torch.stack(logits), STEPS, frozenset())
    answers = list(zip(alone.items(), together, strict=True))
    return {
        "different": [name for (name, a), b in answers if differ(a.tokens, b.tokens, a.close_call)],
        # in 16 bits the first token may be a close call, before which there is nothing to compare
        "equal": sum(a.tokens == b.tokens for (_, a), b in answers),
        "settings": len(answers),
    }


def differ(a: list[int], b: list[int], close_call: int | None) -> bool:
    """Whether tokens differ before the first one that rounding could change."""
    end = len(a) if close_call is None else close_call
    return a[:end] != b[:end]
