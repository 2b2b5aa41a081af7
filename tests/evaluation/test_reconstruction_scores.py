"""KVzip's scores of heads: the most that the second pass gives any token of any context."""

from dataclasses import replace

import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.reconstruction_scores import reconstruction_scores
from kvbench.prefill import Needs, Reconstruction, prefill, reconstruct
from tests.support.sliding import sliding_model
from tests.support.tiny import knowing

TEXTS = ["The ferry leaves at nine. The bakery opens at seven. ", "Of all towns on the coast the ferry serves three. "]
QUESTION = "When does the ferry leave?"


def of_one(tiny, sample: Sample, question: str) -> torch.Tensor:
    """The largest scores [layers, KV heads] of a context by hand."""
    read, how = tokenise(tiny, sample, question), Reconstruction()
    state = prefill(tiny.model, read.context, Needs())
    reconstruct(tiny.model, read.context, state, how, context_frame(tiny, read))
    rows = [layer.reconstruction[how].scores for layer in state.layers]
    return torch.stack([row[:, row[0].isfinite()].amax(dim=1) for row in rows])


def test_a_heads_score_is_the_largest_of_its_tokens_over_all_contexts_without_their_questions(tiny):
    samples = [Sample(str(i), text + QUESTION, ("nine",), 4, question=QUESTION) for i, text in enumerate(TEXTS)]
    asked_nothing = Sample("plain", TEXTS[0], ("nine",), 4)
    each = [of_one(tiny, sample, "hidden") for sample in samples]
    found = torch.tensor(reconstruction_scores(tiny, samples))
    assert torch.equal(found, torch.maximum(*each)) and not torch.equal(*each)
    assert found.min() > 0 and found.max() <= 1
    plain = torch.tensor(reconstruction_scores(tiny, [asked_nothing]))
    assert torch.equal(plain, of_one(tiny, asked_nothing, "visible"))


def test_a_context_beyond_the_window_of_every_layer_is_told(tiny):
    windows = replace(tiny, model=knowing(sliding_model("mistral"), tiny.tokenizer))
    with pytest.raises(UserError, match=r"scores=kvzip has no layers to read: .* sliding window, which \d+ tokens"):
        reconstruction_scores(windows, [Sample("a", TEXTS[0], ("nine",), 4)])
