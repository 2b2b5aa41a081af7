"""The published needle-in-a-haystack testers: Kamradt's and PyramidKV's, and their parts that kvpress's tester shares.

A tester is a rule that places the needle, a prompt template, a stopping rule and a score. All three use one
haystack (all texts joined without a separator, cut to length) and one needle sentence in every cell of the grid.
The needles, questions and prompts in the YAML files are kvbench's; `needle_file` reads the published ones, and
`meta` records the origin of both.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import NeedleGrid
from kvbench.benchmarks.niah.placement import at_period, cut, encode, take
from kvbench.benchmarks.niah.published_texts import read_needle
from kvbench.benchmarks.niah.ranges import IntegerDepths, numbers, whole
from kvbench.benchmarks.planned import PromptSize
from kvbench.benchmarks.truncation import PromptText
from kvbench.errors import UserError
from kvbench.metrics.needle import rouge1_f, rouge1_recall
from kvbench.utils.checked import Positive, checked
from kvbench.utils.tokenizer import Tokenizer


@checked(prefix="benchmark.")
class SentenceTester(NeedleGrid):
    """A grid with one needle sentence; `prompt` has the places {context} and {question}, in this order.

    question=hidden hides the line of {question} and all that follows it.
    """

    needle: str = ""
    question: str = ""
    prompt: str = "{context}\n\n{question}"
    answer_prefix: str = ""
    needle_file: str | None = None  # a .json or .py file or "published", see `published_texts.read_needle`

    chat: ClassVar[bool] = True
    stop_at_newline: ClassVar[bool] = False
    question_apart: ClassVar[bool] = False
    packages = ("rouge_score",)

    def __post_init__(self) -> None:
        super().__post_init__()
        published = {} if self.needle_file is None else read_needle(self.needle_file)
        self.origin = {key: "file" if key in published else "own" for key in ("needle", "prompt")}
        for key, text in published.items():
            setattr(self, key, text)
        if not self.needle.strip() or not self.question.strip():
            raise UserError(f"{self.name} needs benchmark.needle and benchmark.question, or benchmark.needle_file")
        before, _, after = self.prompt.partition("{context}")
        if "{question}" in before or after.count("{question}") != 1:
            raise UserError("benchmark.prompt must contain {context} and {question} once each, in this order")

    @staticmethod
    @abstractmethod
    def place(text: list[int], needle: list[int], depth: float, tokenizer: Tokenizer) -> list[int]:
        """The text's token ids with the needle's among them."""

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        needle = encode(self.needle, tokenizer)
        text = take(self.haystack(0, separator=""), tokenizer, max(self.lengths))
        samples = []
        for length in self.lengths:
            beginning = cut(text, length - self.buffer, len(needle))
            for depth in self.depths:
                context = tokenizer.decode(self.place(beginning, needle, depth, tokenizer), skip_special_tokens=True)
                prompt, question = self.fill(context)
                samples.append(
                    Sample(
                        id=f"{self.name}-{length}-{depth:g}",
                        prompt=prompt,
                        answers=(self.needle.strip(),),
                        max_new_tokens=self.max_new_tokens,
                        question=question,
                        question_apart=self.question_apart,
                        prefix=self.answer_prefix,
                        chat=self.chat,
                        stop_at_newline=self.stop_at_newline,
                        may_be_empty=True,
                        unit=self.text_of(0),  # one text for all cells
                        meta={"task": self.name, "length": length, "depth": depth, **self.origin},
                    )
                )
        return samples

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (needle,) = sample.answers
        return {"rouge1": rouge1_f(needle, prediction)}

    def fill(self, context: str) -> PromptText:
        """The prompt, and its end from the line of the question on."""
        before, _, after = self.prompt.partition("{context}")
        between, _, end = after.partition("{question}")
        instruction, newline, lead = between.rpartition("\n")
        tail = lead + self.question + end
        return PromptText(before + context + instruction + newline + tail, tail)


@checked(prefix="benchmark.")
class KamradtNeedle(SentenceTester):
    """LLMTest_NeedleInAHaystack (Kamradt 2023): chat, the needle after a full stop, a long answer.

    Kamradt has GPT grade answers from 1 to 10. Here: ROUGE-1 F, and ROUGE-1 recall, the share of the needle's words.
    """

    depths: IntegerDepths
    max_new_tokens: Positive = 300
    name: str = "niah_kamradt"
    place = staticmethod(at_period)
    metrics = ("rouge1", "recall")

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (needle,) = sample.answers
        return super().score(sample, prediction) | {"recall": rouge1_recall(needle, prediction)}


@checked(prefix="benchmark.")
class PyramidKVNeedle(SentenceTester):
    """PyramidKV's run_needle_in_haystack.py (Cai et al. 2024): Kamradt's contexts as raw text; a line end ends the
    answer, even as its first token.

    PyramidKV's score is ten times this one.
    """

    depths: IntegerDepths
    max_new_tokens: Positive = 30
    name: str = "niah_pyramidkv"
    place = staticmethod(at_period)
    metrics = ("rouge1",)
    chat = False
    stop_at_newline = True

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]]:
        depths, new_tokens = numbers(config["depths"]), config["max_new_tokens"]
        return {"": [PromptSize(length, new_tokens) for length in whole(config["lengths"]) for _ in depths]}
