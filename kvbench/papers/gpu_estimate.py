"""GPU hours and memory of an experiment, estimated from the shapes of its models without a measurement."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvbench.benchmarks.planned import PromptSize
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.shared_work import shared_work
from kvbench.models.flops import forward_flops, token_bytes
from kvbench.papers.gpu import GPU, H100
from kvbench.utils.versions import parts

ITEMSIZE = 2  # bytes of a number in bfloat16


@dataclass(frozen=True)
class Shape:
    """The sizes of a network in conf/model: `model.shape` and `model.parameters`."""

    parameters: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int

    @classmethod
    def from_model(cls, shape: Mapping[str, int] | None, parameters: int | None) -> "Shape | None":
        """The shape from `model.shape` and `model.parameters`; None if a number is missing."""
        if not shape or not parameters:
            return None
        names = [name for name in cls.__dataclass_fields__ if name != "parameters"]
        return cls(parameters, *(shape[name] for name in names)) if {*names} <= {*shape} else None

    @property
    def weight_bytes(self) -> int:
        return ITEMSIZE * self.parameters

    @property
    def token_bytes(self) -> int:
        return token_bytes(self.num_hidden_layers, self.num_key_value_heads, self.head_dim, ITEMSIZE)

    def flops(self, n: int) -> float:
        """Operations for a prompt of n tokens. Layers with a sliding window count as layers with full attention."""
        windows = (None,) * self.num_hidden_layers
        return forward_flops(self.parameters, windows, self.num_attention_heads, self.head_dim, n)


class Estimate(NamedTuple):
    seconds: float  # GPU seconds
    most_bytes: float  # bytes of the largest sample


def estimate(
    shape: Shape, settings: Sequence[Setting], sizes: Iterable[PromptSize], batch: str, gpu: GPU = H100
) -> Estimate | None:
    """GPU seconds, and the bytes of the largest sample; None if a prompt or a batch has no known size.

    `batch` is decode.batch. Answers are as long as the benchmark allows. Time is one prefill per group of settings that
    share it, plus, for each decoded token, reading the weights once per pass and every sequence's cache. Settings that
    decode alone have a pass each. Bytes are the maximum of three moments, each with the weights: the prompt and the
    caches made of it so far (FullKV's takes no extra bytes); the prompt and the cache of a setting that decodes alone;
    the batch without the prompt. Compression, observations, activations and launches of kernels are left out, so that a
    run takes longer and holds more; `scripts/benchmarks/count_peak_bytes.py` counts the bytes with them.
    """
    seconds = most = 0.0
    for size, samples in Counter(sizes).items():
        if size.tokens is None or size.batch is None:
            return None  # unknown length, or a batch as large as fits
        one_by_one = size.batch > 1 or size.repeats > 1
        prompt, answers = size.tokens * shape.token_bytes, size.new_tokens * shape.token_bytes * size.batch
        for work in shared_work(settings, size.tokens, shape.num_hidden_layers, batch, one_by_one):
            alone, together = (
                [
                    _stored(setting, size.tokens, size.new_tokens, shape) * shape.token_bytes * size.batch
                    for setting in group
                ]
                for group in (work.alone, work.together)
            )
            cut = (_kept(setting, size.tokens, size.new_tokens, shape) < size.tokens for setting in work.together)
            read = len(work.passes) * shape.weight_bytes + sum(alone + together) + len(work.settings) * answers / 2
            prefills = len(work.settings) if size.repeats > 1 else 1
            flops = prefills * shape.flops(size.tokens)
            seconds += samples * size.repeats * gpu.seconds(flops, size.new_tokens * read)
            moments = [prompt + max(alone, default=0) + (answers if alone else 0)]
            moments.append(prompt + sum(stored for stored, own in zip(together, cut, strict=True) if own))
            moments.append(sum(together) + work.at_once * answers)
            most = max(most, shape.weight_bytes + max(moments))
    return Estimate(seconds, most)


def _stored(setting: Setting, n: int, new_tokens: int, shape: Shape) -> float:
    """`_kept` in tokens per layer and KV head: query heads that select for themselves may each store a copy."""
    kept, method = _kept(setting, n, new_tokens, shape), setting.method
    if kept < n and method.unfolds and any(getattr(part, "granularity", "") == "query_head" for part in parts(method)):
        return kept * shape.num_attention_heads / shape.num_key_value_heads
    return kept


def _kept(setting: Setting, n: int, new_tokens: int, shape: Shape) -> float:
    """The budget for a prompt of n tokens per layer and head, at most n; n for a method without ratio and budget."""
    if not setting.method.takes_budget:
        return n
    return min(n, setting.budget_at(n, shape.num_hidden_layers, new_tokens))
