"""Decoding with compiled layers (`decode.engine=fused`): kernels of a layer and token on a GPU, and rounding.

Kernels are counted in the code that torch's Inductor makes for an H100, on a machine without a GPU
(tests/support/gpu_code.py): Triton kernels, matrix products, and the launches of kvbench's operators. Beside them the
kernels of a layer whose operations are launched one by one, as bench_launches.py counts them. Nothing is timed.

Rounding: the same tokens are read by eager steps and by compiled ones, which Inductor's code for a CPU computes, on the
embedded model. Differences are in units of eps · L, with L the largest absolute logit of a step, which is what
`GAP_NOISE` in kvbench/evaluation/decode.py counts in.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config, Qwen3Config

from kvbench.cache.batch import BatchCache
from kvbench.evaluation.decode import GAP_NOISE, batched
from kvbench.evaluation.fused_layers import OPTIONS, DeviceCache, compiling, with_compiled_layers
from kvbench.evaluation.steps import step
from kvbench.methods import Dense, Eviction, FullKV, Method, WindowAttention
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import prefill
from scripts.benchmarks.bench_launches import Ragged
from scripts.benchmarks.measure_batch_rounding import differences, models
from scripts.frame import arguments, tell
from tests.support.gpu_code import GpuCode
from tests.support.launch_counts import decoding_per_layer

FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
LLAMA_3_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
UNION = Eviction(scoring=WindowAttention(window=8), granularity="query_head", storage=Dense("union"))
KINDS: dict[str, list[Method]] = {"full": [FullKV()], "full, ragged, union": [FullKV(), Ragged(), UNION]}
N = 96


def caches(model: PreTrainedModel, methods: Sequence[Method], ids: Tensor, room: int) -> BatchCache:
    rows = [method.compress(prefill(model, ids, method.needs), len(ids) // 2) for method in methods]
    cache = batched(rows)
    cache.make_room(room)
    return cache


def logits_of(model: PreTrainedModel, cache: BatchCache, tokens: Tensor, fused: PreTrainedModel | None) -> Tensor:
    """Logits [steps, rows, vocab_size] after each of tokens [steps]; the first step is always eager."""
    positions, logits = torch.full((1, 1), cache.get_seq_length()), []
    for number, token in enumerate(tokens):
        ids = token.expand(len(cache.sequences))
        if fused is None or not number:
            logits.append(step(model, cache, ids, positions))
        else:
            with compiling():
                logits.append(step(fused, DeviceCache(cache), ids, positions))
            cache.advance()
    return torch.stack(logits).double()


def kernels_of(family: str, sizes: dict[str, int], methods: Sequence[Method]) -> dict:
    config = FAMILIES[family](vocab_size=997, num_hidden_layers=1, **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=torch.bfloat16).eval()
    made, tokens = GpuCode(), torch.tensor([3, 4])
    torch._dynamo.reset()
    fused = with_compiled_layers(model, backend=made)
    logits_of(model, caches(model, methods, torch.randint(3, 997, (N,)), 2), tokens, fused)
    (kernels,) = made.kernels()
    return {"kernels": kernels.total(), "names": dict(sorted(kernels.items()))}


def counts() -> dict:
    eager, _ = decoding_per_layer(N, lambda layers: [(FullKV(), N)])
    fused = {family: {kind: kernels_of(family, SMALL, each) for kind, each in KINDS.items()} for family in FAMILIES}
    fused["a layer of Llama-3-8B"] = {"full": kernels_of("llama", LLAMA_3_8B, KINDS["full"])}
    return {"launched one by one (llama, full)": eager.kernels, "fused": fused}


def roundings(length: int, steps: int) -> Iterator[tuple[str, dict]]:
    for name, model, ids in islice(models(length), 1):
        tokens = torch.randint(3, model.config.vocab_size, (steps,))
        for dtype in (torch.float32, torch.bfloat16):
            model.to(dtype)
            torch._dynamo.reset()
            fused = with_compiled_layers(model, options=OPTIONS)
            eager, other = (
                logits_of(model, caches(model, KINDS["full"], ids, steps), tokens, x) for x in (None, fused)
            )
            changes = differences(eager[1:], other[1:], torch.finfo(dtype).eps)
            yield (
                f"{name}, {str(dtype).removeprefix('torch.')}",
                {
                    "steps": steps - 1,
                    "largest_change_of_a_logit": round(float(changes["any_logit"].max()), 2),
                    "largest_change_of_a_gap": round(float(changes["gap"].max()), 2),
                    "noise_of_a_batch": GAP_NOISE[dtype],
                    "likeliest_tokens_that_changed": int(changes["turned"].sum()),
                },
            )


@torch.inference_mode()
def main() -> None:
    options = arguments(__doc__, length=320, steps=33)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    kernels = counts()
    print(json.dumps(kernels, indent=1), flush=True)
    rounding = {}
    for name, each in roundings(options.length, options.steps):
        rounding[name] = each
        print(name, each, flush=True)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    what = "kernels of a compiled layer and token on a GPU, and its rounding"
    tell({"what": what, **versions, "kernels": kernels, "rounding": rounding}, options.json)


if __name__ == "__main__":
    main()
