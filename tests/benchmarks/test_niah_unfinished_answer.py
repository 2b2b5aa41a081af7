"""Needles for models that complete a text: the prompt ends right before the number."""

import pytest

from kvbench.benchmarks.niah import NeedleToComplete
from kvbench.errors import UserError


def test_the_prompt_ends_within_the_answer_and_its_question_can_be_hidden(embedded):
    benchmark = NeedleToComplete(lengths=[512], depths=[0, 50, 100], buffer=100, max_new_tokens=9)
    samples = benchmark.samples(embedded.tokenizer)
    assert len({sample.id for sample in samples}) == len(samples) == 3
    for sample in samples:
        (number,) = sample.answers
        assert sample.prompt.count(f" is {number}.") == 1 and sample.prompt.endswith(" is")
        asked, answer = sample.question.split("\n")
        city = asked.removeprefix("Question: What is the secret number of ").removesuffix("?")
        assert answer == f"Answer: The secret number of {city} is"
        assert not sample.chat and sample.stop_at_newline
        assert 400 < len(embedded.encode(sample.prompt, chat=False)) <= 512
        assert benchmark.score(sample, f" {number}.") == {"digits": 1.0, "exact": 1.0}


def test_sentences_are_refused():
    with pytest.raises(UserError, match="needle=sentence: niah_base hides numbers"):
        NeedleToComplete(lengths=[512], depths=[0], needle="sentence")
