"""Twenty-two methods of today over one prompt, over the time of FullKV alone; and what that time goes to.

Every round runs FullKV alone, then the methods without KVzip, then all of them, each as a run of kvbench does: one
prefill with all observations, a compression for each, and one batch that decodes. CPU seconds are of the whole process,
and ratios those of one round. KVzip reads the context again: `least_with_a_second_pass` is what both passes multiply,
over what the prefill alone does, without any score, request or decoded token.
"""

import time
from collections.abc import Sequence
from statistics import median

import torch

from kvbench.configuration.conf import composed
from kvbench.evaluation.decode import batched, decode
from kvbench.evaluation.prefill_passes import prefill_pass
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.prefill import FullPrefill, Reconstruction
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

METHODS = (
    "streaming_llm",
    "h2o",
    "snapkv",
    "tova",
    "knorm",
    "keydiff",
    "lagkv",
    "nacl",
    "chunkkv",
    "cur",
    "leverage",
    "non_causal",
    "compactor",
    "expected_attention",
    "triattention",
    "criticalkv_snapkv",
    "pyramidkv",
    "cake",
    "squeeze_snapkv",
    "adakv",
    "lava",
    "kvzip",
)
RATIO = 0.2
ARMS = {"full": ("full",), "without_kvzip": METHODS[:-1], "all": METHODS}


class Clock:
    """CPU seconds of this process, part by part."""

    def __init__(self) -> None:
        self.at, self.parts = time.process_time(), {}

    def lap(self, part: str) -> None:
        now = time.process_time()
        self.parts[part] = self.parts.get(part, 0.0) + now - self.at
        self.at = now


@torch.inference_mode()
def run(model: torch.nn.Module, ids: torch.Tensor, settings: Sequence[Setting], new_tokens: int) -> Clock:
    clock = Clock()
    prefilled = prefill_pass(model, ids, FullPrefill(), [setting.method for setting in settings], "shared")
    clock.lap("prefill")
    layers = len(prefilled.state.layers)
    compressed = []
    for setting in settings:
        budget = setting.budget_at(len(ids), layers, new_tokens)
        compressed.append(prefilled.compress(setting.method, budget))
        clock.lap(f"compression {setting.name}")
    cache = batched([compression.caches for compression in compressed])
    decode(model, cache, torch.stack([compression.logits for compression in compressed]), new_tokens, frozenset())
    clock.lap("decoding")
    return clock


def least(model: torch.nn.Module, n: int, chunk: int) -> float:
    """Multiplications of the prefill and of a second pass in chunks, over those of the prefill.

    A chunk's tokens attend to the whole prompt and, causally, to themselves.
    """
    config = model.config
    weights = sum(x.numel() for x in model.model.layers.parameters() if x.dim() == 2)
    pair = config.num_hidden_layers * config.num_attention_heads * config.head_dim  # of a query and a key, in QKᵀ
    prefill = n * weights + n * (n + 1) // 2 * 2 * pair
    chunks = [min(chunk, n - start) for start in range(0, n, chunk)]
    second = n * weights + sum((q * n + q * (q + 1) // 2) * 2 * pair for q in chunks)
    return (prefill + second) / prefill


def main() -> None:
    options = arguments(__doc__, length=4096, new_tokens=16, repeats=3)
    model = embedded_model()
    ids = needle_prompt(model, options.length)
    settings = {
        arm: build_settings(composed([f"method=[{','.join(names)}]"])["method"], RATIO, None, None)
        for arm, names in ARMS.items()
    }
    for arm in ARMS:  # loops are compiled
        run(model.model, ids[:192], settings[arm], 2)
    rounds = [
        {arm: run(model.model, ids, settings[arm], options.new_tokens).parts for arm in ARMS}
        for _ in range(options.repeats)
    ]
    seconds = [{arm: sum(parts.values()) for arm, parts in arms.items()} for arms in rounds]
    middle = sorted(rounds, key=lambda arms: sum(arms["all"].values()))[len(rounds) // 2]
    tell(
        {
            "what": "CPU seconds of 22 settings over one prompt / CPU seconds of FullKV alone",
            "prompt_tokens": len(ids),
            "new_tokens": options.new_tokens,
            "threads": torch.get_num_threads(),
            "settings": [f"{name} {RATIO:g}" for name in METHODS],
            "cpu_seconds": {arm: [round(totals[arm], 2) for totals in seconds] for arm in ARMS},
            "over_full": {
                arm: {
                    "rounds": [round(totals[arm] / totals["full"], 2) for totals in seconds],
                    "median": round(median(totals[arm] / totals["full"] for totals in seconds), 2),
                }
                for arm in ("without_kvzip", "all")
            },
            "least_with_a_second_pass": round(least(model.model, len(ids), Reconstruction().chunk), 2),
            "parts_of_a_round": {
                arm: {part: round(value, 2) for part, value in parts.items()} for arm, parts in middle.items()
            },
        },
        options.json,
    )


if __name__ == "__main__":
    main()
