"""Twelve settings of one prompt decoding as one batch, against the same twelve one by one.

Compression is done before the clock starts; both ways are timed in one run on the embedded model, and their texts
are compared: where two differ, the batch must have called it close by then.
"""

import time
from functools import reduce
from operator import or_
from statistics import median

import torch

from kvbench.evaluation.decode import batched, decode, generate
from kvbench.prefill import prefill
from scripts.benchmarks.bench_shared_prefill import SETTINGS
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell


@torch.inference_mode()
def main() -> None:
    options = arguments(__doc__, length=2048, new_tokens=64, repeats=5)
    model = embedded_model()
    ids = needle_prompt(model, options.length)
    state = prefill(model.model, ids, reduce(or_, (method.needs for _, method, _ in SETTINGS)))

    def caches() -> list:
        return [method.compress(state, int(ratio * state.n)) for _, method, ratio in SETTINGS]

    logits, steps = state.logits, options.new_tokens
    decode(model.model, batched(caches()), logits.expand(len(SETTINGS), -1), 4, frozenset())  # warm-up
    batch, single = [], []
    parted: dict[str, dict] = {}
    for _ in range(options.repeats):
        ready = caches()
        started = time.perf_counter()
        together = decode(model.model, batched(ready), logits.expand(len(SETTINGS), -1), steps, frozenset())
        batch.append(time.perf_counter() - started)

        ready = caches()
        started = time.perf_counter()
        alone = [generate(model.model, each, logits, steps, frozenset()) for each in ready]
        single.append(time.perf_counter() - started)
        for (name, _, ratio), answer, other in zip(SETTINGS, together, alone, strict=True):
            if answer.tokens != other.tokens:
                at = next(i for i, (a, b) in enumerate(zip(answer.tokens, other.tokens, strict=True)) if a != b)
                parted[f"{name} {ratio:g}"] = {"token": at, "close_call": answer.close_call}
                assert answer.close_call is not None and answer.close_call <= at, "a text changed without a close call"

    tokens = len(SETTINGS) * steps
    ratios = [one_by_one / together for one_by_one, together in zip(single, batch, strict=True)]
    tell(
        {
            "what": "12 settings decoding as one batch: throughput over that of one by one",
            "prompt_tokens": len(ids),
            "new_tokens": steps,
            "settings": [f"{name} {ratio:g}" for name, _, ratio in SETTINGS],
            "tokens_per_second_batch": [round(tokens / s, 1) for s in batch],
            "tokens_per_second_one_by_one": [round(tokens / s, 1) for s in single],
            "times_faster": [round(r, 2) for r in ratios],
            "times_faster_median": round(median(ratios), 2),
            "texts_that_differ": parted,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
