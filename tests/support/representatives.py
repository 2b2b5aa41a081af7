"""Presets that stand for all of conf/method, in tests of what does not depend on a preset's numbers."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

import pytest
import torch

from kvbench.evaluation.decode import batched, decode, generate, read
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.utils.versions import versions
from tests.support.config import NAMES
from tests.support.every_method import LAYERS, PRUNED, STEPS, N, model, pass_of, setting, state, steps
from tests.support.paths import DATA
from tests.support.tiny import prompt

# Presets that others stand for, by what for. It is written by scripts/maintenance/choose_representatives.py; a preset
# that it has not seen yet stands for itself.
FILE = DATA / "covered_presets.json"
COVERED: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
# Together they take every step through kvbench's code, and make every choice, that any preset does.
REPRESENTATIVES = sorted(set(NAMES) - set(COVERED["steps"]))
# One for every kind of caches in every storage, numbers included: for tests of what happens after compression.
CACHES = sorted(set(NAMES) - set(COVERED["caches"]))
# One for every kind of caches in every class of storage: for tests of work that numbers do not change.
KINDS = sorted(set(NAMES) - set(COVERED["kinds"]))


def by_kind(names: Iterable[str] = REPRESENTATIVES, *daily: str) -> list:
    """`names` as parameters of a test of what only caches make different: one of each kind, the others nightly but for
    `daily`, which run lines of their own there.

    What each method computes is held daily by tests/test_golden.py and by its own tests.
    """
    return [name if name in KINDS or name in daily else nightly(name) for name in names]


def every_third(cases: Iterable, *daily: object) -> list:
    """A third of a test's cases daily, and those of `daily`; the others, which run no line of their own, nightly."""
    return [case if place % 3 == 0 or case in daily else nightly(case) for place, case in enumerate(cases)]


def nightly(case):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)


def caches_of(name: str) -> tuple[str, ...]:
    """The classes of a preset's caches, and the storage or, where it has none, the method that made them."""
    one = setting(name)
    source, budget = pass_of(one, N)
    kinds = {type(layer).__name__ for layer in source.compress(one.method, budget).caches}
    return (*sorted(kinds), repr(getattr(one.method, "storage", type(one.method))))


def kind_of(name: str) -> tuple[str, ...]:
    """`caches_of` without the numbers of the storage."""
    *kinds, storage = caches_of(name)
    return (*kinds, storage.partition("(")[0])


SHORT = 9  # a prompt within every window


def journey(name: str) -> None:
    """All that happens to a preset: prefill, compression, decoding alone and in a batch, a block of tokens, bytes."""
    for ratio, n in ((0.3, N), (0.7, N), (0.5, SHORT)):
        one = setting(name, ratio)
        budget = one.budget_at(n, LAYERS)
        plan = one.method.plan(n, LAYERS, budget)
        compressed = SharedPass(model(), prompt(n), plan, one.method.needs).compress(one.method, budget)
        alone, first, second = compressed.copies(3)
        generate(model(), alone, compressed.logits, STEPS, frozenset())
        both = batched([first, second])
        decode(model(), both, read(model(), both, prompt(5, seed=1)), 4, frozenset())
        compressed.stored_bytes(first), compressed.r_bytes_16(first), compressed.count(first, 0)
        if one.method.streams:
            StreamedPass(model(), prompt(n), plan).compress(one.method, budget)
    one = setting(name, budget=N + STEPS)
    plan = one.method.plan(N, LAYERS, N + STEPS)
    SharedPass(model(), prompt(N), plan, one.method.needs).compress(one.method, N + STEPS)
    if name not in PRUNED:
        one = setting(name, 0.3)
        steps(one.method.compress(state(N, torch.bfloat16), one.budget_at(N, LAYERS)), 3, torch.bfloat16)
    versions(one.method)


def choices_of(name: str) -> set[tuple[str, str, object]]:
    """The classes that a preset is made of and what it chooses of them, numbers apart: (class, parameter, value)."""
    return set(_choices(setting(name).method))


def _choices(part) -> Iterator[tuple[str, str, object]]:
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            yield type(part).__name__, field.name, type(value).__name__
            yield from _choices(value)
        elif value is None or isinstance(value, bool | str):
            yield type(part).__name__, field.name, value
