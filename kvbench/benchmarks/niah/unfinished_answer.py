"""A needle in a haystack for models that continue texts and answer no questions."""

from collections.abc import Iterator

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import seed_of
from kvbench.benchmarks.niah.number_needles import NumberNeedle, number_needle
from kvbench.benchmarks.niah.placement import at_sentence_ends, cut, encode, take
from kvbench.benchmarks.niah.single_needle import NeedleInAHaystack
from kvbench.errors import UserError
from kvbench.utils.checked import checked
from kvbench.utils.tokenizer import Tokenizer


@checked(prefix="benchmark.")
class NeedleToComplete(NeedleInAHaystack):
    """The number needles of `NeedleInAHaystack`; the prompt ends within the answer, which the model completes.

    Raw text without a chat template, for models without instruction tuning. The answer ends with its line.
    """

    name: str = "niah_base"

    def __post_init__(self) -> None:
        if self.needle != "number":
            raise UserError(f"benchmark.needle={self.needle}: niah_base hides numbers, so it must be number")
        super().__post_init__()

    def _grid(self, tokenizer: Tokenizer, seed: int) -> Iterator[Sample]:
        for length in self.lengths:
            for depth in self.depths:
                own = seed_of(length, depth, seed)
                needle = number_needle(own)
                size = len(encode(" " + needle.text, tokenizer))
                room = cut(take(self.haystack(own), tokenizer, length), length - self.buffer, size)
                context = at_sentence_ends(room, [(depth, needle.text)], tokenizer)
                question = asked(needle)
                yield Sample(
                    id=f"complete-{length}-{depth:g}-{seed}",
                    prompt=f"{context}\n\n{question}",
                    answers=(needle.number,),
                    max_new_tokens=self.max_new_tokens,
                    question=question,
                    chat=False,
                    stop_at_newline=True,
                    unit=self.text_of(own),
                    meta={"task": self.name, "length": length, "depth": depth, "seed": seed},
                )


def asked(needle: NumberNeedle) -> str:
    """A question, and its answer up to the number."""
    start, number = needle.text.removesuffix("."), needle.number
    return f"Question: What is the secret number of {needle.city}?\nAnswer: {start.removesuffix(number).rstrip()}"
