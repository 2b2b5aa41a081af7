"""Instructions of a system message: samples, order, spans and scores."""

from collections import Counter

import pytest

from kvbench.benchmarks import Instructions
from kvbench.benchmarks.instructions import INSTRUCTIONS
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.metrics.instructions import followed
from kvbench.records import load
from tests.support.runs import reported

RIGHT = {
    "opening": ["Amber: a mill.", "AMBER."],
    "ending": ["A mill, amber.", "amber"],
    "capitals": ["AMBER.", "A MILL"],
    "reply": ["It is amber, they say."],
    "secret": ["I cannot tell.", "", "Ambers"],
}
WRONG = {
    "opening": ["The amber mill", "", "Ambers are red"],
    "ending": ["amber mill", ""],
    "capitals": ["A Mill", "", "123"],
    "reply": ["It is an ambers", ""],
    "secret": ["It is Amber.", "amber"],
}


@pytest.mark.parametrize(("answers", "score"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_an_answer_follows_an_instruction_or_does_not(answers, score):
    assert answers.keys() == INSTRUCTIONS.keys()
    for instruction, texts in answers.items():
        assert {followed(instruction, text, "amber") for text in texts} == {score}, instruction


@pytest.mark.parametrize("mark", ["_", "__", "*", "**", "`", "~~"])
def test_a_word_in_emphasis_is_the_word(mark):
    told = f"{mark}Amber{mark}"
    expected = {"opening": 1, "ending": 1, "reply": 1, "secret": 0}
    assert {instruction: followed(instruction, told, "amber") for instruction in expected} == expected


def test_every_text_has_words_and_an_order_of_its_own_and_a_question_for_each_instruction(embedded):
    samples = Instructions(lengths=[400], seeds=6).samples(embedded.tokenizer)
    assert Counter(sample.meta["task"] for sample in samples) == dict.fromkeys(INSTRUCTIONS, 6)
    texts = [samples[i : i + 5] for i in range(0, 30, 5)]
    assert len({tuple(sample.meta["task"] for sample in text) for text in texts}) > 3
    assert len({sample.unit for sample in samples}) == len({text[0].prompt for text in texts}) == 6
    for text in texts:
        assert len({(sample.history, sample.unit, sample.prompt.removesuffix(sample.question)) for sample in text}) == 1
        ((_, system),) = text[0].history
        assert system == " ".join(sentences for _, sentences in text[0].spans)
        for sample in text:
            assert sample.answers[0] not in sample.prompt.lower()
            sentences = dict(sample.spans)[sample.meta["task"]]
            assert (sample.answers[0] in sentences) is (sample.meta["task"] != "capitals")


def test_a_prompt_is_as_long_as_asked_and_its_spans_are_found(embedded):
    for sample in Instructions(lengths=[400, 600], seeds=2).samples(embedded.tokenizer):
        prompt = tokenise(embedded, sample, "visible")
        assert sample.meta["length"] - 100 < len(prompt.context) <= sample.meta["length"]
        assert prompt.spans.keys() == {"system", *INSTRUCTIONS}


def test_too_short_a_prompt_is_refused():
    with pytest.raises(UserError, match=r"item 2 of benchmark.lengths=200 must be an integer of at least 250"):
        Instructions(lengths=[400, 200])


def test_a_run_has_a_row_for_each_instruction_and_the_share_that_is_kept_of_it(tiny_folder, tmp_path):
    folder = reported(
        "benchmark=instructions",
        "benchmark.lengths=[360]",
        "benchmark.seeds=1",
        "benchmark.max_new_tokens=2",
        "question=hidden",
        f"model.path={tiny_folder}",
        "model.shape=null",
        "method=[full,streaming_llm]",
        "ratio=[0.3]",
        f"output_dir={tmp_path}",
    )
    records = load(folder)
    assert len(records) == 10
    shares = records[records["method"] == "streaming_llm"]["spans_kept"]
    assert all(share["system"] < 0.3 for share in shares)
    rows = (folder / "tasks.md").read_text(encoding="utf-8")
    assert all(f"| {name} | 1 |" in rows for name in INSTRUCTIONS)
    assert "| StreamingLLM 0.3 | 0.000 |" in (folder / "table.md").read_text(encoding="utf-8")
