"""A needle in a haystack for base models, which continue a text."""

from kvbench.benchmarks.niah.number_needles import number_needle
from kvbench.benchmarks.niah.single_needle import Needle, NeedleInAHaystack
from kvbench.errors import UserError
from kvbench.utils.checked import checked


@checked(prefix="benchmark.")
class NeedleToComplete(NeedleInAHaystack):
    """The number needles of `NeedleInAHaystack`; the prompt ends within the answer, which the model completes.

    Raw text without a chat template, for models without instruction tuning. The answer ends with its line.
    """

    name: str = "niah_base"

    chat = False
    task = ""

    def __post_init__(self) -> None:
        if self.needle != "number":
            raise UserError(f"benchmark.needle={self.needle}: niah_base hides numbers, so it must be number")
        super().__post_init__()
        self.kind = "complete"

    def _needle(self, seed: int) -> Needle:
        needle = number_needle(seed)
        answer_start = needle.text.partition(f" {needle.number}")[0]
        question = f"Question: What is the secret number of {needle.city}?\nAnswer: {answer_start}"
        return Needle(needle.text, question, needle.number)
