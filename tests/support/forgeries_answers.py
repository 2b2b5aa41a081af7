"""Forgeries of answers and measurements that agree with themselves: what a folder alone cannot give away."""

from collections.abc import Callable

from kvbench.benchmarks import Sample
from kvbench.runner.verify.known_classes import scorer
from tests.support.forged import Forged

SETTING = "snapkv 0.2"

# By name: what forges, and whether making the answers again finds it.
UNSEEN: dict[str, tuple[Callable[[Forged], None], bool]] = {}


def unseen(found: bool):
    def add(function):
        UNSEEN[function.__name__] = (function, found)
        return function

    return add


def answer(forged: Forged, record: dict, tokens: list[int]) -> None:
    """Give a record other tokens behind its first one, as many as it had, with their text and scores."""
    record["tokens"][1 : 1 + len(tokens)] = tokens[: len(record["tokens"]) - 1]
    record["prediction"] = forged.tokenizer.decode(record["tokens"], skip_special_tokens=True)
    sample = Sample(record["sample"], "", tuple(record["answers"]), 1, meta=record)
    record["scores"] = scorer(forged.manifest["benchmark"]).score(sample, record["prediction"])


def right_answers(forged: Forged, setting: str = SETTING, samples: set[str] | None = None) -> None:
    for record in forged.of(setting):
        if samples is None or record["sample"] in samples:
            answer(forged, record, forged.tokenizer(f" {record['answers'][0]}", add_special_tokens=False)["input_ids"])
            assert record["scores"]["exact"] == 1.0


@unseen(found=True)
def answers_that_a_person_wrote(f):
    right_answers(f)


@unseen(found=True)
def answers_of_a_larger_ratio(f):
    for record, larger in zip(f.of(SETTING), f.of("snapkv 0.5"), strict=True):
        answer(f, record, larger["tokens"][1:])


@unseen(found=True)
def answers_of_other_samples(f):
    texts = [record["tokens"][1:] for record in f.of(SETTING)]
    for record, other in zip(f.of(SETTING), [*texts[1:], texts[0]], strict=True):
        answer(f, record, other)


@unseen(found=True)
def a_worse_baseline(f):
    for record in f.of("full"):
        answer(f, record, [7, 7, 7])


@unseen(found=True)
def answers_and_close_calls_at_their_first_token(f):
    right_answers(f)
    for record in f.records:
        record["close_call"] = 0


@unseen(found=True)
def fewer_bytes_of_an_allocation_that_may_give_some_up(f):
    for record in f.of("pyramidkv 0.2"):
        layers, n = [kept - 1 for kept in record["kept_per_layer"]], record["prompt_tokens"]
        r = sum(layers) / len(layers) / n
        record |= {"kept_per_layer": layers, "r1": r, "r": r, "r_corrected": r}
        record |= {"stored_bytes": round(r * record["full_bytes"])}
        record["r_bytes"] = record["stored_bytes"] / record["full_bytes"]


@unseen(found=True)
def a_smaller_distance(f):
    for record in f.of(SETTING):
        record["distance"] = {**record["distance"], "kl": record["distance"]["kl"] / 2}


@unseen(found=False)
def half_the_time(f):
    for record in f.of(SETTING):
        record |= {name: record[name] / 2 for name in ("compress_seconds", "decode_seconds")}


@unseen(found=False)
def another_processor(f):
    f.manifest["hardware"]["cpu"] = "another one"


@unseen(found=False)
def another_commit(f):
    f.manifest["git"] = "0" * 40


@unseen(found=False)
def peaks_of_an_allocator(f):
    for record in f.of(SETTING):
        record["peak_device_bytes"] = 1_000
