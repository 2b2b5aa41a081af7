"""CPU time of the Python and the dispatch around a decoded token: kvbench's loop against `model.generate`.

A random Llama of 32 layers that are so small that arithmetic takes next to nothing: what is left is what a GPU would
wait for. Both decode the same tokens in turn, on one thread; CPU time, since other work on the machine does not count.
A batch is compared with `generate` of one row and with `generate` of as many rows.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from kvbench.evaluation.decode import batched, decode
from kvbench.methods import Eviction, FullKV, Kivi
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import Needs, prefill
from scripts.frame import arguments, tell

PROMPT = 64
ROWS = 12
BATCHES = f"full, {ROWS} rows over generate of {ROWS}"
METHODS = {"full": FullKV(), "snapkv": Eviction(), "kivi": FullKV(storage=Kivi(group=16))}


def tiny() -> LlamaConfig:
    sizes = {"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 32, "vocab_size": 128}
    return LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=2, head_dim=16, max_position_embeddings=4096)


def seconds_of(call: Callable[[], list[int]]) -> tuple[float, list[int]]:
    started = time.process_time()
    tokens = call()
    return time.process_time() - started, tokens


def main() -> None:
    options = arguments(__doc__, new_tokens=101, repeats=9)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny(), attn_implementation=ATTENTION, dtype=torch.float32).eval()
    stock = AutoModelForCausalLM.from_config(tiny(), attn_implementation="sdpa", dtype=torch.float32).eval()
    stock.load_state_dict(model.state_dict())
    ids = torch.randint(3, 128, (PROMPT,))
    state = prefill(model, ids, Needs(window=32))
    count = options.new_tokens

    def decoded(name: str, rows: int = 1) -> Callable[[], list[int]]:
        caches = [METHODS[name].compress(state, PROMPT // 2 if name == "snapkv" else PROMPT) for _ in range(rows)]
        logits = state.logits.expand(rows, -1)
        return lambda: decode(model, batched(caches), logits, count, frozenset())[0].tokens

    def generated(rows: int) -> list[int]:
        new = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        prompts = ids.expand(rows, -1)
        out = stock.generate(prompts, attention_mask=torch.ones_like(prompts), eos_token_id=None, **new)
        return out[0, PROMPT:].tolist()

    cases = {name: (name, 1) for name in METHODS} | {f"full, {ROWS} rows": ("full", ROWS)}
    by_case: dict[str, list[float]] = {name: [] for name in (*cases, BATCHES)}
    theirs: dict[int, list[float]] = {1: [], ROWS: []}
    with torch.inference_mode():
        for turn in range(options.repeats + 1):  # the first one warms up
            whole = {}
            for rows in theirs:
                whole[rows], expected = seconds_of(partial(generated, rows))
                theirs[rows] += [whole[rows]] if turn else []
            for name, (method, rows) in cases.items():
                took, tokens = seconds_of(decoded(method, rows))
                assert method != "full" or tokens == expected, "FullKV differs from model.generate"
                if turn:
                    by_case[name].append(took / whole[1])
                if turn and rows > 1:
                    by_case[BATCHES].append(took / whole[rows])
    tell(
        {
            "what": "CPU time of decoding through kvbench / CPU time of model.generate, prompt included",
            "prompt_tokens": PROMPT,
            "new_tokens": count,
            "generate_ms_per_token": round(1000 * median(theirs[1]) / count, 2),
            f"generate_ms_per_token_{ROWS}_rows": round(1000 * median(theirs[ROWS]) / count, 2),
            "ratios": {name: [round(ratio, 3) for ratio in sorted(ratios)] for name, ratios in by_case.items()},
            "ratio_median": {name: round(median(ratios), 3) for name, ratios in by_case.items()},
        },
        options.json,
    )


if __name__ == "__main__":
    main()
