"""Runs over samples made for a test."""

from dataclasses import dataclass

from kvbench.benchmarks import Benchmark, Sample
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.records.store import Store
from tests.support.config import method

TEXT = "The ferry leaves at nine. The secret number of Oslo is 7391426. Bread is baked before dawn."
QUESTION = "\n\nWhat is the secret number of Oslo?"


def sample(name: str = "a", question: str = QUESTION, **more) -> Sample:
    return Sample(name, TEXT + question, ("7391426",), 12, question=question, **more)


@dataclass
class Given(Benchmark):
    given: list
    name: str = "given"
    metrics: tuple = ("exact",)

    @property
    def longest(self):
        return 400

    def samples(self, tokenizer):
        return self.given

    def score(self, sample, prediction):
        return {"exact": float(sample.answers[0] in prediction)}


SETTINGS = [
    Setting("full", method("full"), '{"f": 1}'),
    Setting("snapkv", method("snapkv"), '{"s": 1}', ratio=0.5),
    Setting("spindle", method("spindle"), '{"x": 1}', ratio=0.5),
]


def made(tmp_path, embedded, samples, question="hidden", settings=SETTINGS, memory="shared"):
    run = Run("run", question, embedded, Given(samples), settings, memory, question)
    with Store(tmp_path) as store:
        return {(record["sample"], record["setting"]): record for record in evaluate(run, samples, store)}
