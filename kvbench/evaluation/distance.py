"""How far a setting is from FullKV along FullKV's own greedy answer, without expected answers.

The tokens of FullKV's answer are read behind each setting's caches, and the logits that predict them are compared
with those behind FullKV's caches (teacher forcing): the Kullback-Leibler divergence, and how often both have the same
most likely token. Where an answer is expected, its log-likelihood is compared too. A sample with a `continuation` has
this text instead of FullKV's answer, and the probability of its tokens is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.benchmarks.text import LONGEST
from kvbench.cache.batch import BatchCache
from kvbench.evaluation.decode import batched, read, read_all
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Answer, MethodRun, Row
from kvbench.evaluation.settings import is_full
from kvbench.evaluation.text_measures import text_measures, text_tokens
from kvbench.utils.device import reset_device_peak

CHUNK = 128  # tokens whose logits are compared at a time in float32


@dataclass(frozen=True)
class Forced:
    """A setting's predictions for two given continuations of a prompt."""

    logits: Tensor  # [t, vocab_size]: the logits that predict each token of FullKV's answer, or of the text to score
    answer_loglik: float | None  # nats: of the first expected answer; None where none is expected


class Distances:
    """The distances of the settings of one context, prompt after prompt; FullKV's row comes first for each."""

    def __init__(self, run: MethodRun):
        self.run = run
        # by sample: FullKV's answer [t], its stop token included, or the text to score
        self.tokens: dict[str, Tensor] = {}
        self.reference: dict[str, Forced] = {}

    def measure(self, prompt: Prompt, rows: Sequence[Row], outputs: Sequence[Answer]) -> list[dict[str, float] | None]:
        """One distance per row; None if logits were not finite (the row's or FullKV's), or for no tokens."""
        model, name = self.run.loaded.model, prompt.sample.id
        for row, output in zip(rows, outputs, strict=True):
            generation = output.generation
            if is_full(row.setting) and generation.not_finite is None:
                ids = [*generation.tokens, *([] if generation.ended_by is None else [generation.ended_by])]
                if prompt.sample.continuation:
                    ids = text_tokens(self.run.loaded, prompt.sample)
                self.tokens[name] = torch.tensor(ids[:LONGEST])
                self.reference[name] = self.forced(prompt, row)
        distances = [self.of_row(prompt, row, output) for row, output in zip(rows, outputs, strict=True)]
        for row, output in zip(rows, outputs, strict=True):
            if output.device_peak is not None:  # the passes above are no part of a later question's peak
                row.compressed.device_peak = max(output.device_peak, row.compressed.device_peak or 0)
                reset_device_peak(model)
        return distances

    def of_row(self, prompt: Prompt, row: Row, output: Answer) -> dict[str, float] | None:
        name = prompt.sample.id
        if name not in self.reference or output.generation.not_finite is not None:
            return None
        reference = self.reference[name]
        forced = reference if is_full(row.setting) else self.forced(prompt, row)
        # tokens that were chosen with the uncompressed cache are the same under every setting
        shared = 0 if len(prompt.question) else row.setting.method.full_cache_tokens
        distance = compare(reference.logits[shared:], forced.logits[shared:])
        if forced.answer_loglik is not None and reference.answer_loglik is not None:
            distance["answer_loglik"] = forced.answer_loglik - reference.answer_loglik
        if prompt.sample.continuation:
            distance |= self.of_text(prompt, forced.logits)
        return distance or None

    def of_text(self, prompt: Prompt, logits: Tensor) -> dict[str, float]:
        """How well logits [t, vocab_size] predict the t tokens of the text to score.

        The first token is left out under every setting if the uncompressed cache predicts it under most.
        """
        first = 0 if len(prompt.question) else 1
        tokens = self.tokens[prompt.sample.id][first:]
        return text_measures(self.run.loaded, tokens.tolist(), loglik(logits[first:], tokens))

    @torch.inference_mode()
    def forced(self, prompt: Prompt, row: Row) -> Forced:
        """Read both continuations behind copies of a row's compressed caches."""
        logits = self.logits(prompt, row, self.tokens[prompt.sample.id])
        if not prompt.sample.answers:
            return Forced(logits, None)
        answer = prompt.sample.answers[0]
        ids = self.run.loaded.tokenizer(answer, add_special_tokens=False, return_tensors="pt")["input_ids"][0][:LONGEST]
        if not len(ids):
            return Forced(logits, None)
        return Forced(logits, loglik(self.logits(prompt, row, ids), ids))

    def logits(self, prompt: Prompt, row: Row, tokens: Tensor) -> Tensor:
        """The logits that predict each of tokens [t] after the prompt: [t, vocab_size]."""
        model, cache = self.run.loaded.model, batched([next(row.copies)])
        first = row.compressed.logits[None]
        if len(prompt.question):
            first = read(model, cache, prompt.question)
        return torch.cat([first, read_rest(model, cache, tokens)])


def read_rest(model: PreTrainedModel, cache: BatchCache, tokens: Tensor) -> Tensor:
    """The logits after each of tokens [t] but the last: [t - 1, vocab_size]."""
    if len(tokens) < 2:
        return torch.empty(0, model.config.get_text_config().vocab_size, device=model.device, dtype=model.dtype)
    return read_all(model, cache, tokens[:-1])[0]


def compare(full: Tensor, other: Tensor) -> dict[str, float]:
    """Distances of logits `other` from FullKV's, both [t, vocab_size]; {} for no tokens.

    kl      mean over tokens of KL(FullKV ‖ other), in nats.
    top1    share of tokens at which both have the same most likely token.
    agreed  share of tokens before the first at which they differ.
    """
    if not len(full):
        return {}
    kl = torch.cat([divergence(*pair) for pair in zip(full.split(CHUNK), other.split(CHUNK), strict=True)])
    matches = full.argmax(dim=-1) == other.argmax(dim=-1)
    agreed = matches.int().cumprod(dim=0)
    means = torch.stack([kl.double().mean(), matches.double().mean(), agreed.double().mean()]).tolist()
    return dict(zip(("kl", "top1", "agreed"), means, strict=True))


def divergence(full: Tensor, other: Tensor) -> Tensor:
    """KL(full ‖ other) of logits [t, vocab_size] in nats, over the whole vocabulary in float32: [t]."""
    p, q = full.float().log_softmax(dim=-1), other.float().log_softmax(dim=-1)
    terms = p.exp() * (p - q)
    return terms.masked_fill_(p.isneginf(), 0).sum(dim=-1).clamp_(min=0)  # rounding makes small ones negative


def loglik(logits: Tensor, tokens: Tensor) -> float:
    """The log-likelihood of tokens [t] under logits [t, vocab_size], in nats."""
    tokens = tokens.to(logits.device)
    parts = [
        part.float().log_softmax(dim=-1).gather(1, ids[:, None]).double().sum()
        for part, ids in zip(logits.split(CHUNK), tokens.split(CHUNK), strict=True)
    ]
    return torch.stack(parts).sum().item()
