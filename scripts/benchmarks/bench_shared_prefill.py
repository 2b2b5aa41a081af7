"""Twelve settings over one prompt: one shared prefill against the same twelve run one by one.

Both ways are timed in one run on the embedded model, compression and decoding included, and must give the same
tokens. The ratio is what "a whole table costs little more than one FullKV run" rests on.
"""

import time
from functools import reduce
from operator import or_
from statistics import median

import torch

from kvbench.evaluation.decode import generate
from kvbench.methods import H2O, Eviction, FullKV, Method, Pyramid, StreamingLLM, WindowAttention
from kvbench.prefill import prefill
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

RATIOS = (0.1, 0.2, 0.4)
SETTINGS: list[tuple[str, Method, float]] = [
    ("full", FullKV(), 1.0),
    *[("streaming_llm", StreamingLLM(), ratio) for ratio in RATIOS[:2]],
    *[("h2o", H2O(), ratio) for ratio in RATIOS],
    *[("snapkv", Eviction(), ratio) for ratio in RATIOS],
    *[("pyramidkv", Eviction(Pyramid(), WindowAttention(window=8)), ratio) for ratio in RATIOS],
]


@torch.inference_mode()
def answer(model, state, method: Method, ratio: float, steps: int) -> list[int]:
    caches = method.compress(state, int(ratio * state.n))
    return generate(model.model, caches, state.logits, steps, frozenset()).tokens


def main() -> None:
    options = arguments(__doc__, length=4096, new_tokens=16, repeats=3)
    model = embedded_model()
    ids = needle_prompt(model, options.length)
    prefill(model.model, ids[:256], reduce(or_, (method.needs for _, method, _ in SETTINGS)))  # warm-up

    shared, alone, ratios = [], [], []
    for _ in range(options.repeats):
        started = time.perf_counter()
        state = prefill(model.model, ids, reduce(or_, (method.needs for _, method, _ in SETTINGS)))
        together = [answer(model, state, method, ratio, options.new_tokens) for _, method, ratio in SETTINGS]
        shared.append(time.perf_counter() - started)
        del state

        started = time.perf_counter()
        one_by_one = [
            answer(model, prefill(model.model, ids, method.needs), method, ratio, options.new_tokens)
            for _, method, ratio in SETTINGS
        ]
        alone.append(time.perf_counter() - started)
        ratios.append(alone[-1] / shared[-1])
        assert together == one_by_one, "sharing the prefill changed the tokens"

    tell(
        {
            "what": "12 settings over one prompt: seconds one by one / seconds with a shared prefill",
            "prompt_tokens": len(ids),
            "new_tokens": options.new_tokens,
            "settings": [f"{name} {ratio:g}" for name, _, ratio in SETTINGS],
            "shared_seconds": [round(s, 2) for s in shared],
            "one_by_one_seconds": [round(s, 2) for s in alone],
            "times_faster": [round(r, 2) for r in ratios],
            "times_faster_median": round(median(ratios), 2),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
