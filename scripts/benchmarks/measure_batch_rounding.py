"""How much decoding in a batch changes logits by rounding, for each dtype: the measurement behind `close_call`.

The same compressed caches decode the same tokens one by one and as rows of batches of several sizes, on the embedded
model and on tiny random ones, with the matrix kernels of several instruction sets: some kernels sum the rows of a batch
in the same order as a single row and show no difference, others do. Differences are in units of eps · L, with L the
row's largest absolute logit.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from operator import or_

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from kvbench.evaluation.decode import batched
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.cache_argument import as_argument
from kvbench.prefill import prefill
from scripts.benchmarks.bench_shared_prefill import SETTINGS
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

# What oneDNN may use, the most that the processor has where that is less; the first is its own choice.
KERNELS = ("DEFAULT", "AVX512_CORE_BF16", "AVX512_CORE")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TINY = {"llama": LlamaConfig, "qwen2": Qwen2Config}
RIVALS = 8  # tokens next to the likeliest one whose distance from it is compared


def tiny(family: str) -> PreTrainedModel:
    """A random model of four layers, with weights wide enough for attention that is far from uniform."""
    torch.manual_seed(0)
    config = TINY[family](
        vocab_size=997,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.1)
    return model


def models(length: int) -> Iterator[tuple[str, PreTrainedModel, Tensor]]:
    """Name, model in float32, and prompt."""
    embedded = embedded_model()
    yield "smollm2-135m", embedded.model, needle_prompt(embedded, length)
    for family in TINY:
        yield f"random {family}", tiny(family), torch.randint(3, 997, (length,))


def logits_of(model: PreTrainedModel, sequences: Sequence, tokens: Tensor) -> Tensor:
    """Logits [steps, sequences, vocab_size] after each of tokens [sequences, steps]."""
    cache = batched(sequences)
    return torch.stack(
        [model(input_ids=step[:, None], **as_argument(model, cache)).logits[:, -1].double() for step in tokens.T]
    )


def differences(alone: Tensor, together: Tensor, eps: float) -> dict[str, Tensor]:
    """Per step and row: change of any logit, and of the gap between the likeliest token and its rivals."""
    unit = eps * alone.abs().amax(dim=-1)
    change = together - alone
    best = alone.topk(1 + RIVALS, dim=-1).indices
    near = change.gather(-1, best)
    gaps = (near[..., :1] - near[..., 1:]).abs().amax(dim=-1)
    turned = alone.argmax(dim=-1) != together.argmax(dim=-1)
    return {"any_logit": change.abs().amax(dim=-1) / unit, "gap": gaps / unit, "turned": turned}


def measured(model: PreTrainedModel, ids: Tensor, steps: int, sizes: Sequence[int]) -> dict:
    """One model in one dtype."""
    state = prefill(model, ids, reduce(or_, (method.needs for _, method, _ in SETTINGS)))
    every = [method.compress(state, int(ratio * state.n)) for _, method, ratio in SETTINGS][: max(sizes)]
    tokens = torch.randint(3, model.config.vocab_size, (len(every), steps))
    eps = torch.finfo(model.dtype).eps
    alone = torch.cat(
        [logits_of(model, [copy.deepcopy(each)], row[None]) for each, row in zip(every, tokens, strict=True)], dim=1
    )
    changes = []
    for size in sizes:
        together = logits_of(model, [copy.deepcopy(each) for each in every[:size]], tokens[:size])
        changes.append(differences(alone[:, :size], together, eps))
    whole = {key: torch.cat([each[key].flatten() for each in changes]) for key in changes[0]}
    return {
        "logits_compared": len(whole["gap"]),
        "largest_change_of_a_logit": round(float(whole["any_logit"].max()), 2),
        "largest_change_of_a_gap": round(float(whole["gap"].max()), 2),
        "change_of_a_gap_99_percent": round(float(whole["gap"].quantile(0.99)), 2),
        "change_of_a_gap_median": round(float(whole["gap"].median()), 2),
        "largest_change_of_a_gap_by_batch": {
            str(size): round(float(each["gap"].max()), 2) for size, each in zip(sizes, changes, strict=True)
        },
        "likeliest_tokens_that_changed": int(whole["turned"].sum()),
    }


@torch.inference_mode()
def measure(length: int, steps: int, sizes: Sequence[int]) -> dict:
    """Every model in every dtype."""
    torch.manual_seed(0)
    result = {}
    for name, model, ids in models(length):
        result[name] = {
            str(dtype).removeprefix("torch."): measured(model.to(dtype), ids, steps, sizes) for dtype in DTYPES
        }
    return result


def main() -> None:
    options = arguments(__doc__, length=600, steps=8)
    sizes, changes = (2, 4, 12), {}
    for kernels in KERNELS:
        os.environ["ONEDNN_MAX_CPU_ISA"] = kernels  # read when a process makes its first matrix product
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            changes[kernels] = pool.submit(measure, options.length, options.steps, sizes).result()
    cells = [(dtype, cell) for models in changes.values() for each in models.values() for dtype, cell in each.items()]
    largest = {}
    for dtype, cell in cells:
        largest[dtype] = max(largest.get(dtype, 0.0), cell["largest_change_of_a_gap"])
    tell(
        {
            "what": "change of logits by decoding in a batch instead of one by one, in units of eps · largest logit",
            "batches": sizes,
            "steps": options.steps,
            "rivals": RIVALS,
            "largest_change_of_a_gap": largest,
            "kernels": changes,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
