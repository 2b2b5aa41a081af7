"""How much each query head looks at a needle while the model recites it: HeadKV's and retrieval heads' measure."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.benchmarks import Benchmark, Sample
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import check_layers
from kvbench.methods import FullKV
from kvbench.models import LoadedModel
from kvbench.ops.softmax import capped_, plain, weights
from kvbench.prefill import LayerState, Needs, prefill

ANSWERED = 0.5  # the benchmark's main score above which an answer counts


@torch.inference_mode()
def retrieval_scores(
    loaded: LoadedModel, benchmark: Benchmark, samples: Sequence[Sample]
) -> tuple[list[list[float]], list[str]]:
    """Scores [layers][query heads], and the ids of the samples that they are the mean of.

    The prompt of a sample contains its answer, N tokens, once. A head's score is its attention to these tokens, summed
    over all generated tokens and divided by N; only answer tokens among the N that the head attends to most count.
    Samples that the model does not answer are left out.
    Source: HeadKV (Fu et al. 2024, section 3.1), after Wu et al. 2024. Raises UserError if no sample is answered,
    or no layer keeps the whole of one that is.
    """
    scores, used = [], []
    for sample in samples:
        ids, needle = tokens_of(loaded, sample)
        state = prefill(loaded.model, ids, Needs())
        caches = state.whole(FullKV().compress(state, len(ids)))
        tokens = generate(loaded.model, caches, state.logits, sample.max_new_tokens, loaded.stop_tokens).tokens
        score = benchmark.score(sample, loaded.decode(tokens))[benchmark.metrics[0]]
        if score <= ANSWERED:
            continue
        read = torch.cat([ids, torch.tensor(tokens[:-1], dtype=ids.dtype)])
        check_layers(loaded.model, len(read), "scores=retrieval")
        layers = prefill(loaded.model, read, Needs(window=len(tokens))).layers
        scores.append(torch.stack([layer_scores(layer, len(tokens), needle).cpu() for layer in layers]))
        used.append(sample.id)
    if not scores:
        raise UserError(f"{loaded.spec.name} answers none of these {len(samples)} prompts: no head can be scored")
    return torch.stack(scores).mean(dim=0).tolist(), used


class PromptTokens(NamedTuple):
    ids: Tensor  # [n]
    needle: Tensor  # places of the answer's tokens in `ids`


def tokens_of(loaded: LoadedModel, sample: Sample) -> PromptTokens:
    """The tokens of the sample's prompt. Raises UserError where the answer is not in it exactly once."""
    text = loaded.render(sample.prompt, sample.chat, sample.prefix)
    encoded = loaded.tokenise(text, sample.chat, return_offsets_mapping=True)
    answer = sample.answers[0]
    start = text.find(answer)
    if start < 0 or text.find(answer, start + 1) >= 0:
        raise UserError(f"the prompt of sample {sample.id!r} must contain its answer exactly once")
    spans = encoded["offset_mapping"]
    needle = [i for i, (first, end) in enumerate(spans) if first < start + len(answer) and end > start]
    return PromptTokens(torch.tensor(encoded["input_ids"]), torch.tensor(needle))


def layer_scores(layer: LayerState, rows: int, needle: Tensor) -> Tensor:
    """The score of each query head [num_attention_heads] from the last `rows` queries of a layer."""
    group, needle = layer.num_attention_heads // layer.num_key_value_heads, needle.to(layer.keys.device)
    keys = layer.keys.float().repeat_interleave(group, dim=0)
    logits = layer.last_queries(rows).float() @ keys.mT * plain(layer.scaling)  # [heads, rows, n]
    capped_(logits, layer.scaling)
    seen = torch.ones(rows, layer.n, dtype=torch.bool, device=keys.device).tril(layer.n - rows)
    attention = weights(logits.masked_fill(~seen, float("-inf")), layer.scaling)
    attention, places = attention.topk(len(needle), dim=-1)
    return (attention * torch.isin(places, needle)).sum(dim=(1, 2)) / len(needle)
