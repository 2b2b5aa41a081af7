"""Drawn answers: tokens from the model's distribution, by random numbers that depend on a sample's seed alone."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.benchmarks import Sampling
from kvbench.evaluation.decode import GAP_NOISE, Choice


class Sampler:
    """Chooses the tokens of several sequences, each with its own seed and otherwise the same `Sampling`.

    Each token takes one random number u of its sequence: the token at which the probabilities, added up in the order of
    token ids, exceed u. So a sequence draws the same tokens alone and in any batch, unless u is so close to a sum that
    rounding decides; and settings whose distributions are alike draw alike.
    """

    def __init__(self, samplings: Sequence[Sampling]):
        self.how = replace(samplings[0], seed=0)
        if any(replace(sampling, seed=0) != self.how for sampling in samplings):
            raise ValueError("sequences that are sampled together may differ only in their seeds")
        self.streams = [random.Random(sampling.seed) for sampling in samplings]

    def __call__(self, logits: Tensor, sequences: Sequence[int]) -> Choice:
        """For each row of logits [rows, vocab_size], which belongs to `sequences`: see `kvbench.evaluation.decode`."""
        finite = logits.float().amax(dim=-1).isfinite()
        scaled = logits.float().masked_fill(~finite[:, None], 0) / self.how.temperature
        noise = self._noise(logits)
        probabilities, uncertain = nucleus(scaled, self.how.top_k, self.how.top_p, noise)
        sums = probabilities.cumsum(dim=-1)
        sums /= sums[:, -1:].clone()
        drawn = torch.tensor([self.streams[i].random() for i in sequences], dtype=sums.dtype, device=sums.device)
        tokens = (sums <= drawn[:, None]).sum(dim=-1, keepdim=True)
        above = sums.gather(1, tokens)
        below = above - probabilities.gather(1, tokens) / probabilities.sum(dim=-1, keepdim=True)
        odds = drawn[:, None].logit()
        near = ((above.logit() - odds) < noise) | ((odds - below.clamp(min=0).logit()) < noise)
        close = uncertain | near[:, 0]
        return Choice(tokens[:, 0], close, finite)

    def _noise(self, logits: Tensor) -> Tensor:
        """How much the gap between two scaled logits of a row may change in a batch, [rows, 1].

        If no gap changes by more than this, neither do the log-odds of any set of tokens.
        """
        largest = logits.masked_fill(~logits.isfinite(), 0).abs().amax(dim=-1, keepdim=True).double()
        return GAP_NOISE[logits.dtype] * torch.finfo(logits.dtype).eps * largest / self.how.temperature


class Nucleus(NamedTuple):
    probabilities: Tensor  # float64 [rows, vocab_size], 0 for tokens that are not drawn
    uncertain: Tensor  # bool [rows]: whether noise could change the set of drawn tokens


def nucleus(scaled: Tensor, top_k: int | None, top_p: float, noise: Tensor) -> Nucleus:
    """The tokens that may be drawn by scaled logits [rows, vocab_size] whose gaps change by `noise` [rows, 1].

    These are the fewest of the `top_k` likeliest whose probabilities sum to at least `top_p`, the likeliest first.
    """
    rows, size = scaled.shape
    most = min(top_k or size, size)
    if most == size and top_p >= 1:
        none = torch.zeros(rows, dtype=torch.bool, device=scaled.device)
        return Nucleus(scaled.double().softmax(dim=-1), none)
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    likeliest = values[:, :most].double().softmax(dim=-1)
    before = likeliest.cumsum(dim=-1) - likeliest
    keep = before < top_p
    last = keep.sum(dim=-1, keepdim=True) - 1
    probabilities = torch.zeros_like(scaled, dtype=torch.float64).scatter(1, order[:, :most], likeliest * keep)
    after = (last + 1).clamp(max=size - 1)
    uncertain = (values.gather(1, last) - values.gather(1, after) < noise) & (after > last)
    if top_p < 1:
        edges = before.gather(1, torch.cat([last, after.clamp(max=most - 1)], dim=1)).clamp(0, 1)
        limit = torch.logit(torch.tensor(top_p, dtype=torch.float64))
        uncertain |= ((edges.logit() - limit).abs() < noise).any(dim=-1, keepdim=True)
    return Nucleus(probabilities, uncertain[:, 0])
