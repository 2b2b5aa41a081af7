"""BABILong's prompts, read at run time from published source, each checked against the official SHA-256."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.benchmarks.published_data import given_or_fetched, installed_folder
from kvbench.benchmarks.python_texts import constants, proven
from kvbench.benchmarks.truncation import PromptText
from kvbench.errors import UserError

COMMIT = "7a6efee29f5cac03c3c410e6799c80fd2ffe3610"
PUBLISHED = {
    f"https://raw.githubusercontent.com/booydar/babilong/{COMMIT}/babilong/prompts.py": (
        "be08d7e466170177e38fddb997e3dd9ffb281d5a830edd240933e069a9c5c2ee"
    )
}
# SHA-256 of each task's whole prompt, with the texts {context} and {question} where a row's fields go.
SHA256 = {
    "qa1": "0f1a5046a16325fb1987c539c820da66718c361a6c54f9dd06f70fcd53788068",
    "qa2": "bb35582fdc0de670981619ea86a2f1c8b5899396acd2aa03153f3a987f8311ee",
    "qa3": "9a5485e7764feeab4d3f3da71175c2243959dc7b49d89454830c4d1ee3473b4d",
    "qa4": "59a17724fcdec55935610a67527cf43f78bd75484dc216ef570b784eabeda720",
    "qa5": "2ed27301a45fb54a197ab8cd90d274c0f3b07734117dfb7fbcfe7facf63be970",
    "qa6": "871dc1fcb4a22ee66295e6315ad447ee3a5ca04b3997481d779d80c28328c38d",
    "qa7": "40fa28892188e27c1c9e8b208c9d2953de139058f130320981e16221da61fae8",
    "qa8": "d1ea8426146b0b92963a10c2fa71b260762959d14c5454c2d495e07919d923d9",
    "qa9": "972924f1778738924c3b204bdc88bf77ce7968db6135255e82507f0e80bbe22b",
    "qa10": "5bcdf6968c942a5db8696e05cfb014fe1e11bafe2d10e8233294d79905d76da9",
    "qa11": "de80c2b7772c7880b8b66a4ac5c23367170605c991079fc0cedd6f0184b128f3",
    "qa12": "3a4c27f3c47ed4088c449495ea1f859610d2b4506a67b3d5162489923ef9daf7",
    "qa13": "3b6bde264cddb34d74b8d15f6a90ba0481399405277fb69ba122d3cb8dd88ac3",
    "qa14": "7f5e4746c468a5b9a2f95262f6a9919e670e4b5946f1be76bad3dea8aa3b9a20",
    "qa15": "b50a2b5abc604a7f79d24f47fe60fd859b22f63f56f4228e97a0e2ca981e8ba6",
    "qa16": "5a131aa706d895358508448a6d29b1dce735fbe4d796d39160cc309b547d6e26",
    "qa17": "5e9fef65d2f44ad45b5fba1fbdcb2ec72040eae021163063b097b6f637bed9cb",
    "qa18": "a696e34066c5c814a799e6639b39e956e8e126ac7e79285e543a253bfab486b5",
    "qa19": "c3c5959820b3570bfe353b187ae33d455b1efca140e3a3091aa52f7f667d8b10",
    "qa20": "b5821ab898ac905784ae1e06f3bb948d34a24f908b120b5bc70a398aa41823bc",
}
PARTS = ("instruction", "examples", "post_prompt")


@dataclass(frozen=True)
class Prompt:
    """A task's prompt: the text before the context, and the text after it, which contains {question}."""

    before: str
    after: str

    def fill(self, context: str, question: str) -> PromptText:
        """The prompt of a row, and the part that follows the context, as in the official get_formatted_input."""
        tail = self.after.replace("{question}", question).rstrip()
        return PromptText((self.before + context.strip() + tail).lstrip(), tail)


def load(tasks: Iterable[str], prompts_file: str | None = None) -> dict[str, Prompt]:
    """The official prompts of `tasks`: from `prompts_file`, an installed opencompass, or BABILong's repository.

    The source is Python, which is parsed and not run. Raises UserError where a prompt is not the official one.
    """
    source = _source(prompts_file)
    values = constants(source)
    template: Any = values.get("DEFAULT_TEMPLATE")
    parts: Any = values.get("DEFAULT_PROMPTS")
    prompts = {}
    for task in tasks:
        try:
            prompt = template.format(
                context="{context}", question="{question}", **{key: parts[task][key] for key in PARTS}
            )
        except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
            raise UserError(f"{source} has no prompt for {task!r}: it is not BABILong's babilong/prompts.py") from error
        text = proven(f"the prompt of {task!r}", prompt.strip(), SHA256[task], source)
        before, _, after = text.partition("{context}")
        prompts[task] = Prompt(before, after)
    return prompts


def _source(prompts_file: str | None) -> Path:
    package = installed_folder("opencompass") if prompts_file is None else None
    path = package and package / "datasets" / "babilong" / "prompts.py"
    if path and path.is_file():
        return path
    return given_or_fetched("prompts_file", prompts_file, "babilong-prompts.py", PUBLISHED)
