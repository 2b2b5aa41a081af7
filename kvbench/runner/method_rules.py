"""The rules that `kvbench check` tries on a method, with a tiny random model that needs no file."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.evaluation.cache_checks import (
    check_budget,
    check_bytes,
    check_kept,
    check_lengths,
    check_unchanged,
    hold,
    kept_of,
    tensors_of,
)
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import Compressed, SharedPass, StreamedPass
from kvbench.evaluation.record import per_head
from kvbench.evaluation.settings import Setting
from kvbench.methods import FullKV, Method, Scoring
from kvbench.methods.facts import allowed, most_share, never_full, overspends
from kvbench.models.random_weights import random_model
from kvbench.prefill import FullPrefill, Needs
from kvbench.runner.verify.check_bytes import EQUAL, ROUNDED, least_stored
from kvbench.utils.text import count
from kvbench.utils.versions import parts

SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 192,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 65536,
    "initializer_range": 0.35,  # wide, so that attention is far from uniform and greedy tokens differ
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
TOKENS, STEPS = 120, 12  # tokens of a prompt; decoded tokens, and as many after a first reduction while decoding
SHARES = (0.1, 0.3, 0.7)
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)


class Trial:
    """A method on a tiny model: 4 layers, 6 query heads over 2 KV heads of 32 channels."""

    def __init__(self, setting: Setting):
        self.setting, self.method = setting, setting.method
        # prompts are longer than the tokens that the method always keeps
        self.n = max(TOKENS, 3 * self.method.minimum_budget)

    @cached_property
    def model(self) -> PreTrainedModel:
        return random_model(SHAPE, torch.float32, "cpu")

    @property
    def layers(self) -> int:
        return int(SHAPE["num_hidden_layers"])

    @property
    def budgets(self) -> list[int | float]:
        """Budgets, in tokens per layer and head, that make the method drop tokens."""
        if not self.method.takes_budget:
            return [self.n]
        floor = self.method.floor(self.n, self.layers)
        return sorted({max(int(share * self.n), floor) for share in SHARES})

    def prompt(self, n: int) -> Tensor:
        return torch.randint(3, SHAPE["vocab_size"], (n,), generator=torch.Generator().manual_seed(n))

    def prefilled(self, n: int, budget: int | float, model: PreTrainedModel | None = None) -> SharedPass:
        """The method's pass over a prompt of n tokens."""
        plan = self.method.plan(n, self.layers, budget)
        return SharedPass(model or self.model, self.prompt(n), plan, self.method.needs)

    def check_kept(self, caches: Sequence[LayerCache], n: int, full_bytes: int) -> None:
        """Check what layers report. A codebook or a table may take more bytes of a short prompt than it saves."""
        heads = SHAPE["num_attention_heads"] // SHAPE["num_key_value_heads"] if self.method.counts_groups else 1
        check_kept(caches, n, full_bytes, max(1.5, most_share(self.method, n) + 1e-9), heads)

    def prefilled_full(self) -> Compressed:
        source = SharedPass(self.model, self.prompt(self.n), FullPrefill(), Needs())
        return source.compress(FullKV(), self.n)

    @property
    def steps(self) -> int:
        """Decoded tokens, among them one after which a method reduces its caches while decoding."""
        schedule = getattr(self.method, "decode_compression", None)
        return STEPS if schedule is None else schedule.every + STEPS

    def decoded(self, compressed: Compressed, steps: int | None = None) -> list[int]:
        return generate(self.model, compressed.caches, compressed.logits, steps or self.steps, frozenset()).tokens


def keeps_the_budget(trial: Trial) -> None:
    for budget in trial.budgets:
        source = trial.prefilled(trial.n, budget)
        compressed = source.compress(trial.method, budget)
        trial.check_kept(compressed.caches, trial.n, compressed.full_bytes)
        if trial.method.takes_budget and not overspends(trial.method):
            check_budget(compressed.caches, trial.n, allowed(trial.method, budget, trial.n))


def stores_what_it_lists(trial: Trial) -> None:
    for budget in trial.budgets:
        compressed = trial.prefilled(trial.n, budget).compress(trial.method, budget)
        check_bytes(compressed.caches)
        trial.decoded(compressed)
        check_bytes(compressed.caches)


def stores_its_least_share(trial: Trial) -> None:
    """`kvbench verify` would call each record wrong whose bytes are fewer."""
    for dtype in (torch.float32, torch.bfloat16):
        model = random_model(SHAPE, dtype, "cpu")
        for budget in trial.budgets:
            compressed = trial.prefilled(trial.n, budget, model).compress(trial.method, budget)
            generate(model, compressed.caches, compressed.logits, trial.steps, frozenset())
            layers, share = kept_of(compressed.caches), compressed.ratio(compressed.caches)
            kept = {
                "kept_per_layer": [layer.r1 * trial.n for layer in layers],
                "kept_per_head": per_head(layers),
                "prompt_tokens": trial.n,
                "ratio_over": share.ratio_over,
            }
            least = max(least_stored(kept, trial.method, dtype.itemsize, shape) for shape in (SHAPE, None))
            hold(
                share.r_bytes >= least * (1 - EQUAL) - ROUNDED / trial.n,
                f"{str(dtype).removeprefix('torch.')}, with a budget of {budget:g}: it stores {share.r_bytes:.3f} of "
                f"FullKV's bytes, but its least_share makes at least {least:.3f}",
            )


def leaves_the_state(trial: Trial) -> None:
    for budget in trial.budgets:
        source = trial.prefilled(trial.n, budget)
        before = [x.clone() for x in tensors_of(source.state)]
        trial.decoded(source.compress(trial.method, budget))
        check_unchanged(tensors_of(source.state), before)


def goes_on_at_true_positions(trial: Trial) -> None:
    for budget in trial.budgets:
        compressed = trial.prefilled(trial.n, budget).compress(trial.method, budget)
        check_lengths(compressed.caches, trial.n)
        trial.decoded(compressed)
        check_lengths(compressed.caches, trial.n + trial.steps - 1)


def is_the_same_each_time(trial: Trial) -> None:
    for budget in trial.budgets:
        source = trial.prefilled(trial.n, budget)
        first, second = (trial.decoded(source.compress(trial.method, budget)) for _ in range(2))
        hold(first == second, f"with a budget of {budget:g}, compressing the same prompt again gives other tokens")


def is_full_where_nothing_binds(trial: Trial) -> None:
    budget = trial.n + trial.steps
    compressed = trial.prefilled(trial.n, budget).compress(trial.method, budget)
    full = trial.prefilled_full()
    tokens, expected = trial.decoded(compressed), trial.decoded(full)
    matches = sum(a == b for a, b in zip(tokens, expected, strict=True))
    hold(tokens == expected, f"with a budget of the whole prompt, only {matches} of {trial.steps} tokens are FullKV's")


def takes_every_length(trial: Trial) -> None:
    for n in LENGTHS:
        budget = max(n // 2, trial.method.floor(n, trial.layers)) if trial.method.takes_budget else n
        compressed = trial.prefilled(n, budget).compress(trial.method, budget)
        trial.check_kept(compressed.caches, n, compressed.full_bytes)
        trial.decoded(compressed, steps=3)
        check_lengths(compressed.caches, n + 2)


def computes_in_half_precision(trial: Trial) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        model = random_model(SHAPE, dtype, "cpu")
        budget = trial.budgets[0]
        compressed = trial.prefilled(trial.n, budget, model).compress(trial.method, budget)
        output = generate(model, compressed.caches, compressed.logits, trial.steps, frozenset())
        name = str(dtype).removeprefix("torch.")
        hold(output.not_finite is None, f"{name}: the logits of generated token {output.not_finite} are not finite")


@torch.inference_mode()
def votes_with_numbers(trial: Trial) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        state = trial.prefilled(trial.n, trial.budgets[0], random_model(SHAPE, dtype, "cpu")).state
        for scoring in scorings(trial.method):
            for index, layer in enumerate(state.layers):
                missing = int(scoring.votes_of(layer).isnan().sum())
                where = f"{str(dtype).removeprefix('torch.')}, layer {index}"
                hold(not missing, f"{where}: {type(scoring).__name__}.votes has {count(missing, 'NaN')}")


def streams(trial: Trial) -> None:
    for budget in trial.budgets:
        plan = trial.method.plan(trial.n, trial.layers, budget)
        streamed = StreamedPass(trial.model, trial.prompt(trial.n), plan).compress(trial.method, budget)
        shared = trial.prefilled(trial.n, budget).compress(trial.method, budget)
        equal = trial.decoded(streamed) == trial.decoded(shared)
        hold(equal, f"with a budget of {budget:g}, memory=stream gives other tokens than memory=shared")


FULL, STREAMING = "a budget of the whole prompt gives FullKV's tokens", "memory=stream gives the same tokens"
VOTES = "no vote of its scorer is NaN"
# A method's promises in words -> how they are tried.
RULES: dict[str, Callable[[Trial], None]] = {
    FULL: is_full_where_nothing_binds,
    "it keeps at most its budget, and reports how much": keeps_the_budget,
    "its bytes are those of the tensors that it lists": stores_what_it_lists,
    "its bytes are at least those of its least_share": stores_its_least_share,
    "it does not change the prefill state": leaves_the_state,
    "decoding continues at true positions": goes_on_at_true_positions,
    "the same prompt gives the same tokens each time": is_the_same_each_time,
    "it takes prompts of any length from 1 token on": takes_every_length,
    "logits stay finite in float16 and bfloat16": computes_in_half_precision,
    VOTES: votes_with_numbers,
    STREAMING: streams,
}


def rules_of(trial: Trial) -> dict[str, Callable[[Trial], None]]:
    """The rules that apply to this method: all but its exceptions, that of votes if it has a scorer, and memory=stream
    if it supports it.
    """
    left_out = {*exceptions(trial.method)} | (set() if trial.method.streams else {STREAMING})
    left_out |= set() if scorings(trial.method) else {VOTES}
    return {words: rule for words, rule in RULES.items() if words not in left_out}


def scorings(method: Method) -> list[Scoring]:
    """The scorers that a method asks, without those inside another one, which may ask for less than they do alone."""
    every = [part for part in parts(method) if isinstance(part, Scoring)]
    inner = {id(part) for scoring in every for part in parts(vars(scoring))}
    return [scoring for scoring in every if id(scoring) not in inner]


def exceptions(method: Method) -> dict[str, str]:
    """The rules that the method declares to break, and why."""
    return {FULL: why} if (why := never_full(method)) else {}
