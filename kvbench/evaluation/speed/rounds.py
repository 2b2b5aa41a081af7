"""Rounds of turns → records: settings take their turns in an order that moves on by one from round to round."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from kvbench.benchmarks import Sample
from kvbench.benchmarks.speed import LARGEST
from kvbench.errors import UserError
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.conditions import conditions
from kvbench.evaluation.speed.largest_batch import Room
from kvbench.evaluation.speed.measure import Turn, attempt
from kvbench.evaluation.speed.record import record
from kvbench.records.store import Store
from kvbench.utils.signals import unbroken

# Tokens that a round decodes which only warms up.
WARM_TOKENS = 8


@dataclass(frozen=True)
class Look:
    """What a first turn of one sequence tells about a setting at a length."""

    turn: Turn | None  # None: not even one sequence fits
    largest: int | None  # None: not looked for


@dataclass
class Lane:
    """One setting at a place of the grid, and the turns it has had."""

    setting: Setting
    look: Look
    batch: int  # 0: does not fit
    turns: list[Turn] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # in the order of each round


def check(question: str, memory: str) -> None:
    """Refuse what a speed run leaves no choice in."""
    if question != "visible":
        raise UserError(f"question={question}: benchmark=speed reads a text that asks nothing, leave it at visible")
    if memory != "shared":
        raise UserError(
            f"memory={memory}: benchmark=speed streams every method whose layers do not need each other, and its "
            "records say which; leave it at shared"
        )


def evaluate(run: Run, samples: Sequence[Sample], store: Store) -> Iterator[dict]:
    """Make and store every missing record, a place of the grid at a time; yields each once it is on the disk.

    A killed run makes the places anew that it had not finished: the repeats of one record are of one process.
    """
    room = Room(run.loaded.model, run.benchmark.memory_gib)
    looks: dict[tuple, Look] = {}
    with room.kept_to(), little_to_collect():
        for sample in samples:
            settings = [setting for setting in run.settings if run.key(sample, setting) not in store.done]
            for made in rounds(run, room, sample, settings, looks) if settings else []:
                with unbroken():
                    store.append(made)
                yield made


def rounds(
    run: Run, room: Room, sample: Sample, settings: Sequence[Setting], looks: dict[tuple, Look]
) -> Iterator[dict]:
    """The records of one place of the grid. `looks` remembers first turns, which places with other batches share."""
    model, benchmark, new_tokens = run.loaded.model, run.benchmark, sample.meta["new_tokens"]
    ids = benchmark.ids(run.loaded.tokenizer, sample.meta["length"])
    for setting in settings:
        key = (setting.label, len(ids), new_tokens)
        if key not in looks:
            looks[key] = look(run, room, ids, setting, new_tokens)
    seen = [looks[setting.label, len(ids), new_tokens] for setting in settings]
    lanes = [Lane(s, each, batch_of(room, sample.meta["batch"], each)) for s, each in zip(settings, seen, strict=True)]
    before = conditions()
    for number in range(benchmark.warmup + benchmark.repeats):
        warm = number < benchmark.warmup
        tokens = min(new_tokens, WARM_TOKENS) if warm else new_tokens
        for place, lane in enumerate(rotated(lanes, number)):
            if not lane.batch:
                continue
            turn = attempt(model, ids, lane.setting, lane.batch, tokens, lane.look.turn.footprint)
            if turn is None:
                lane.batch = 0
                lane.turns.clear()
            elif not warm:
                lane.turns.append(turn)
                lane.places.append(place)
    told = {
        "largest_how": room.how,
        "conditions": {"before": before, "after": conditions()},
        "beside": [setting.label for setting in settings],
    }
    for lane in lanes:
        more = {"largest_batch": lane.look.largest, "places": lane.places, **told}
        yield record(run, sample, lane.setting, lane.batch, lane.look.turn, lane.turns, more)


def look(run: Run, room: Room, ids: Tensor, setting: Setting, new_tokens: int) -> Look:
    """A first turn of one sequence, which warms up too; and the largest batch where it is asked for."""
    turn = attempt(run.loaded.model, ids, setting, 1, new_tokens)
    if turn is None:
        return Look(None, 0)
    if not run.benchmark.largest and LARGEST not in run.benchmark.batches:
        return Look(turn, None)
    return Look(turn, room.largest(ids, setting, new_tokens, turn.footprint))


def batch_of(room: Room, wanted: int | str, seen: Look) -> int:
    """Sequences to measure with; 0 where they do not fit."""
    if seen.turn is None:
        return 0
    if wanted == LARGEST:
        return seen.largest
    return wanted if room.holds(wanted, seen.turn.footprint) else 0


@contextmanager
def little_to_collect() -> Iterator[None]:
    """What is there before the first turn stays: the collector, called before each, need not go through it again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def rotated(lanes: Sequence, number: int) -> list:
    """The lanes in the order of round `number`: that of the one before, with its first moved to the end."""
    start = number % len(lanes)
    return [*lanes[start:], *lanes[:start]]
