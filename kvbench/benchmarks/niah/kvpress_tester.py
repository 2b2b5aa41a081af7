"""kvpress's needle in a haystack."""

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.placement import at_token
from kvbench.benchmarks.niah.published_testers import SentenceTester
from kvbench.benchmarks.truncation import PromptText
from kvbench.metrics.kvpress import needle_rouge1
from kvbench.utils.checked import NonNegative, Positive, checked


@checked(prefix="benchmark.")
class KVPressNeedle(SentenceTester):
    """kvpress's needle_in_haystack (NVIDIA/kvpress at 8bb29b9): chat, the needle at any token, and a prompt that begins
    the answer.

    kvpress compresses all text before the question, its wrapper around the book included, and tokenises the
    question separately: run it with question=hidden. Its score is `f` of its rouge-1.
    """

    scored_by = ("kvpress",)
    version = 2  # 1: rouge-score's ROUGE-1, the wrapper's last line hidden with the question
    question_apart = True
    packages = ("rouge",)

    buffer: NonNegative = 150
    max_new_tokens: Positive = 40
    name: str = "niah_kvpress"
    place = staticmethod(at_token)
    metrics = ("rouge1",)

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {"rouge1": needle_rouge1(sample.answers[0], prediction)}

    def fill(self, context: str) -> PromptText:
        """The prompt, and its end from the question itself on."""
        before, _, after = self.prompt.partition("{context}")
        wrapper, _, end = after.partition("{question}")
        tail = self.question + end
        return PromptText(before + context + wrapper + tail, tail)
