"""FullKV through kvbench against `model.generate`: the same prompt, the same tokens, timed in turn in one run.

A ratio below 1 says that kvbench is faster. That of CPU time, of all threads, counts on a machine with other work.
"""

import time
from statistics import median

import torch
from transformers import AutoModelForCausalLM

from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.prefill import Needs, prefill
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell


def main() -> None:
    options = arguments(__doc__, length=2048, new_tokens=64, repeats=7)
    model = embedded_model()
    stock = AutoModelForCausalLM.from_pretrained(model.source, dtype=torch.float32).eval()
    ids = needle_prompt(model, options.length)

    def through_kvbench() -> list[int]:
        state = prefill(model.model, ids, Needs())
        caches = FullKV().compress(state, state.n)
        return generate(model.model, caches, state.logits, options.new_tokens, frozenset()).tokens

    def through_generate() -> list[int]:
        new = {"max_new_tokens": options.new_tokens, "min_new_tokens": options.new_tokens, "do_sample": False}
        out = stock.generate(ids[None], attention_mask=torch.ones_like(ids[None]), eos_token_id=None, **new)
        return out[0, len(ids) :].tolist()

    ours, theirs, on_cpu = [], [], []
    for turn in range(options.repeats + 1):  # the first turn warms up
        started, cpu = time.perf_counter(), time.process_time()
        tokens = through_kvbench()
        middle, cpu_middle = time.perf_counter(), time.process_time()
        expected = through_generate()
        ended, cpu_ended = time.perf_counter(), time.process_time()
        assert tokens == expected, "FullKV differs from model.generate"
        if turn:
            ours.append(middle - started)
            theirs.append(ended - middle)
            on_cpu.append((cpu_middle - cpu) / (cpu_ended - cpu_middle))
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    tell(
        {
            "what": "seconds of FullKV through kvbench / seconds of model.generate",
            "prompt_tokens": len(ids),
            "new_tokens": options.new_tokens,
            "kvbench_seconds": [round(s, 3) for s in ours],
            "generate_seconds": [round(s, 3) for s in theirs],
            "ratios": [round(r, 3) for r in ratios],
            "ratio_median": round(median(ratios), 3),
            "cpu_time_ratios": [round(r, 3) for r in sorted(on_cpu)],
            "cpu_time_ratio_median": round(median(on_cpu), 3),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
