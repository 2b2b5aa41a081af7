"""The lengths of a run's prompts, counted here with its tokenizer, chat template and protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from kvbench.benchmarks import Sample
from kvbench.configuration import ModelSpec
from kvbench.configuration.model_spec import model_spec
from kvbench.evaluation.prompts import answer_tokens, tokenise
from kvbench.models import TextModel

ANY_LENGTH = 2**40  # tokens: the run checked whether prompts fit the model


class Lengths(NamedTuple):
    """Tokens of a prompt that are compressed, and tokens read between compression and answer."""

    context: int
    question: int  # without the model's own answers to earlier turns
    answers: int = 0  # the most tokens of these


@dataclass
class Prompts:
    """Prompts as one model reads them; each is counted once."""

    spec: ModelSpec
    tokenizer: PreTrainedTokenizerBase
    counted: dict[tuple[str, str, str], Lengths] = field(default_factory=dict)

    @classmethod
    def from_model(cls, model: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> "Prompts":
        """From a configuration's `model`. Raises UserError where it describes no model."""
        return cls(replace(model_spec(model), max_length=ANY_LENGTH), tokenizer)

    def lengths(self, sample: Sample, question: str, first_token: str) -> Lengths:
        """Raises UserError for a question that cannot be separated from its context."""
        key = (sample.id, question, first_token)
        if key not in self.counted:
            reader = TextModel(self.spec, PretrainedConfig(), self.tokenizer, "", frozenset())
            prompt = tokenise(reader, sample, question, first_token)
            later = sum(map(len, prompt.turns))
            answers = answer_tokens(sample) - sample.max_new_tokens
            self.counted[key] = Lengths(len(prompt.context), len(prompt.question) + later, answers)
        return self.counted[key]
