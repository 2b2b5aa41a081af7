"""The published testers of needle sentences: Kamradt's, PyramidKV's and kvpress's.

A tester is a rule that places the needle, a form of prompt, a way to stop and a score. What they share: one
haystack, the beginning of all texts joined without a gap, and one needle sentence, in every cell of the grid.
Their needles, questions and prompts are not repeated here: the ones in the YAML files are our own.
`needle_file` brings theirs, and `meta` says of both where they come from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import NeedleGrid
from kvbench.benchmarks.niah.placement import at_period, at_token, cut, encode, take
from kvbench.benchmarks.niah.sources import read_needle
from kvbench.errors import UserError
from kvbench.metrics.needle import rouge1_f, rouge1_recall

# (text, needle, depth, tokenizer) -> the text's token ids with the needle's among them
Placement = Callable[[list[int], list[int], float, PreTrainedTokenizerBase], list[int]]


@dataclass
class SentenceTester(NeedleGrid):
    """A grid with one needle sentence; `prompt` has the places {context} and {question}, in this order.

    The line of {question}, and what follows it, is what question=hidden hides.
    """

    needle: str = ""
    question: str = ""
    prompt: str = "{context}\n\n{question}"
    answer_prefix: str = ""
    needle_file: str | None = None  # a .json or .py file or "published", see `sources.read_needle`

    place: ClassVar[Placement]
    chat: ClassVar[bool] = True
    stop_at_newline: ClassVar[bool] = False
    metrics = ("rouge1",)

    def __post_init__(self):
        super().__post_init__()
        found = {} if self.needle_file is None else read_needle(self.needle_file)
        self.origin = {key: "file" if key in found else "own" for key in ("needle", "prompt")}
        for key, text in found.items():
            setattr(self, key, text)
        if not self.needle.strip() or not self.question.strip():
            raise UserError(f"{self.name} needs benchmark.needle and benchmark.question, or benchmark.needle_file")
        before, _, after = self.prompt.partition("{context}")
        if "{question}" in before or after.count("{question}") != 1:
            raise UserError("benchmark.prompt needs the places {context} and {question} once each, in this order")

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        needle = encode(self.needle, tokenizer)
        text = take(self.haystack(0, separator=""), tokenizer, max(self.lengths))
        found = []
        for length in self.lengths:
            room = cut(text, length - self.buffer, len(needle))
            for depth in self.depths:
                context = tokenizer.decode(self.place(room, needle, depth, tokenizer), skip_special_tokens=True)
                prompt, question = self.fill(context)
                found.append(
                    Sample(
                        id=f"{self.name}-{length}-{depth:g}",
                        prompt=prompt,
                        answers=(self.needle.strip(),),
                        max_new_tokens=self.max_new_tokens,
                        question=question,
                        prefix=self.answer_prefix,
                        chat=self.chat,
                        stop_at_newline=self.stop_at_newline,
                        may_be_empty=True,
                        meta={"task": self.name, "length": length, "depth": depth, **self.origin},
                    )
                )
        return found

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (needle,) = sample.answers
        return {"rouge1": rouge1_f(needle, prediction)}

    def fill(self, context: str) -> tuple[str, str]:
        """The whole prompt, and the end of it that asks."""
        before, _, after = self.prompt.partition("{context}")
        between, _, end = after.partition("{question}")
        told, newline, asking = between.rpartition("\n")
        tail = asking + self.question + end
        return before + context + told + newline + tail, tail


@dataclass
class KamradtNeedle(SentenceTester):
    """LLMTest_NeedleInAHaystack (Kamradt 2023): chat, the needle after a full stop, a long answer.

    Kamradt lets GPT judge answers from 1 to 10. Here: ROUGE-1 F, and the share of the needle's words told.
    """

    max_new_tokens: int = 300
    name: str = "niah_kamradt"
    place = staticmethod(at_period)
    metrics = ("rouge1", "recall")

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (needle,) = sample.answers
        return super().score(sample, prediction) | {"recall": rouge1_recall(needle, prediction)}


@dataclass
class PyramidKVNeedle(SentenceTester):
    """PyramidKV's run_needle_in_haystack.py (Cai et al. 2024): Kamradt's contexts as raw text; a line end ends the
    answer, and may do so as its first token.

    Its score is ten times ours.
    """

    max_new_tokens: int = 30
    name: str = "niah_pyramidkv"
    place = staticmethod(at_period)
    chat = False
    stop_at_newline = True


@dataclass
class KVPressNeedle(SentenceTester):
    """kvpress's needle_in_haystack: chat, the needle wherever its depth falls, the answer begun for the model.

    Its score is ten times ours. kvpress compresses before it asks: run it with question=hidden.
    """

    buffer: int = 150
    max_new_tokens: int = 40
    name: str = "niah_kvpress"
    place = staticmethod(at_token)
