"""How much each KV head is looked at while the model repeats a context: KVzip's measure of heads."""

from collections.abc import Sequence

import torch

from kvbench.benchmarks import Sample
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.prefill_passes import check_layers
from kvbench.evaluation.prompts import tokenise
from kvbench.models import LoadedModel
from kvbench.prefill import Needs, Reconstruction, prefill, reconstruct


@torch.inference_mode()
def reconstruction_scores(loaded: LoadedModel, samples: Sequence[Sample]) -> list[list[float]]:
    """Scores [layers][KV heads], in [0, 1]: the most attention that any token of any context gets in a second pass.

    A sample's question is no part of its context. Source: KVzip (Kim et al. 2025, arXiv 2505.23416), whose released
    files hold the largest scores over one long text, or over two. Raises UserError if no layer keeps a whole context.
    """
    how, largest = Reconstruction(), []
    for sample in samples:
        prompt = tokenise(loaded, sample, "hidden" if sample.question else "visible")
        check_layers(loaded.model, len(prompt.context), "scores=kvzip")
        frame = context_frame(loaded, prompt)
        state = prefill(loaded.model, prompt.context, Needs(reconstructions=frozenset([how])))
        reconstruct(loaded.model, prompt.context, state, how, frame)
        scores = [layer.reconstruction[how].scores.cpu() for layer in state.layers]
        largest.append(torch.stack([rows.masked_fill(rows.isinf(), 0).amax(dim=-1) for rows in scores]))
    return torch.stack(largest).amax(dim=0).tolist()
