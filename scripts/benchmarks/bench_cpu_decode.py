"""Decoding from coded caches on a CPU: tokens per second over FullKV's, with compiled loops and with torch alone.

Every round decodes all settings one after the other; ratios are those of one round, and medians of them are reported.
"""

import copy
import time
from functools import reduce
from operator import or_
from statistics import median

import torch

from kvbench.cache.base import held_bytes
from kvbench.config import composed
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import build_settings
from kvbench.ops.operator import Kernels, use_kernels
from kvbench.prefill import prefill
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

CHOICES: tuple[Kernels, ...] = ("auto", "torch")
NAMES = ("full", "kivi", "spindle")
RATIO = 0.2  # of SpindleKV


@torch.inference_mode()
def main() -> None:
    options = arguments(__doc__, length=1900, new_tokens=48, repeats=5, bfloat16=0)
    loaded = embedded_model()
    model = loaded.model.to(torch.bfloat16) if options.bfloat16 else loaded.model
    ids = needle_prompt(loaded, options.length)
    settings = build_settings(composed([f"method=[{','.join(NAMES)}]"])["method"], RATIO, None, None)
    state = prefill(model, ids, reduce(or_, (setting.method.needs for setting in settings)))
    compressed = {
        setting.name: setting.method.compress(state, setting.budget_at(len(ids), len(state.layers), 0))
        for setting in settings
    }

    def seconds(name: str) -> float:
        caches = copy.deepcopy(compressed[name])
        started = time.perf_counter()
        generate(model, caches, state.logits, options.new_tokens, frozenset())
        return time.perf_counter() - started

    rounds: dict[str, list[dict[str, float]]] = {choice: [] for choice in CHOICES}
    for number in range(options.repeats + 1):
        for choice in CHOICES:
            with use_kernels(choice):
                taken = {name: seconds(name) for name in NAMES}
            if number:  # the first round compiles
                rounds[choice].append(taken)
    tell(
        {
            "what": "tokens per second of decoding over FullKV's, one sequence, on a CPU",
            "prompt_tokens": len(ids),
            "new_tokens": options.new_tokens,
            "dtype": str(model.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "share_of_bytes": {
                name: round(held_bytes(caches) / held_bytes(compressed["full"]), 3)
                for name, caches in compressed.items()
            },
            "full_tokens_per_second": [round((options.new_tokens - 1) / one["full"], 1) for one in rounds["auto"]],
            "over_full": {
                choice: {name: round(median(one["full"] / one[name] for one in taken), 2) for name in NAMES[1:]}
                for choice, taken in rounds.items()
            },
        },
        options.json,
    )


if __name__ == "__main__":
    main()
