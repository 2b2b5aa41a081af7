"""LongBench v2's samples: the official prompt, its truncation, its table."""

import json

import pandas as pd
import pytest

from kvbench.benchmarks import LongBenchV2, longbench_v2
from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.python_texts import sha256
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from tests.support.needs import official
from tests.support.published_prompts import longbench_v2_prompt, longbench_v2_rows

OFFICIAL, needs_official = official("longbench_v2/0shot.txt")


@pytest.fixture
def made(tmp_path, monkeypatch):
    prompts_file = str(longbench_v2_prompt(tmp_path, monkeypatch))

    def make(rows=None, **changes) -> LongBenchV2:
        (tmp_path / "data.json").write_text(json.dumps(longbench_v2_rows() if rows is None else rows))
        config = {"max_length": 4000, "data_dir": str(tmp_path), "prompts_file": prompts_file}
        return LongBenchV2(**(config | changes))

    return make


def test_a_sample_is_the_template_with_the_rows_fields_stripped(made, embedded):
    first, *_ = made().samples(embedded.tokenizer)
    row = longbench_v2_rows()[0]
    context = row["context"].strip()
    assert first.prompt.startswith(f"Text:\n{context}\n--\nAsked: {row['question'].strip()}\n")
    assert first.question == first.prompt.removeprefix(f"Text:\n{context}")
    assert first.prompt.endswith("(D) D of the four\nAnswer")
    assert (first.id, first.answers, first.max_new_tokens, first.chat) == (row["_id"], (row["answer"],), 128, True)
    assert first.unit == text_unit(row["context"])
    assert first.meta == {
        "task": "longbench_v2",
        **{key: row[key] for key in ("domain", "sub_domain", "difficulty", "length")},
        "cut": False,
    }


def test_near_copies_of_a_document_are_one_unit(made, embedded):
    first, second, third = longbench_v2_rows()
    text = "".join(f"Hill {number} is green in spring. " for number in range(20))
    rows = [first | {"context": text}, second, third | {"context": f"{text}The mill stands by the river."}]
    units = [sample.unit for sample in made(rows).samples(embedded.tokenizer)]
    assert units == [text_unit(text), text_unit(second["context"]), text_unit(text)]


def test_marks_in_a_document_are_replaced_as_in_the_official_code(made, embedded):
    row = longbench_v2_rows()[0] | {"context": "A $Q$ and $C_B$ in $DOC$", "question": "Is it $C_A$?"}
    (sample,) = made([row]).samples(embedded.tokenizer)
    assert sample.prompt.startswith(
        "Text:\nA Is it A of the four? and B of the four in $DOC$\n--\nAsked: Is it A of the four?\n"
    )


@pytest.mark.parametrize("mark", ["$Q$", "$C_A$", "$C_D$"])
def test_a_question_that_marks_bring_into_the_document_cannot_be_hidden(made, embedded, mark):
    rows = longbench_v2_rows()
    rows[1] |= {"context": f"Let {mark} be a door. " + rows[1]["context"]}
    first, marked, last = made(rows).samples(embedded.tokenizer)
    for sample in (first, last):
        assert tokenise(embedded, sample, "hidden").context.numel()
    with pytest.raises(UserError, match="'row-1' does not separate its question from its context"):
        tokenise(embedded, marked, "hidden")
    assert [sample.id for sample in made(rows, asked_last=True).samples(embedded.tokenizer)] == ["row-0", "row-2"]


@pytest.mark.parametrize("max_length", [64, 101, 128])
def test_long_prompts_lose_their_middle_and_are_decoded_at_once(made, embedded, max_length):
    tokenizer = embedded.tokenizer
    whole = {sample.id: sample for sample in made().samples(tokenizer)}
    for sample in made(max_length=max_length).samples(tokenizer):
        ids = tokenizer.encode(whole[sample.id].prompt)
        assert len(ids) > max_length
        kept = ids[: max_length // 2] + ids[-max_length // 2 :]
        assert sample.prompt == tokenizer.decode(kept, skip_special_tokens=True)
        assert len(kept) == max_length and sample.meta["cut"]
        assert sample.prompt.endswith(sample.question) and whole[sample.id].question.endswith(sample.question)


@needs_official
def test_the_official_prompt_is_proven(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps(longbench_v2_rows()))
    made = LongBenchV2(max_length=4000, data_dir=str(tmp_path), prompts_file=str(OFFICIAL))
    assert sha256(made.template) == longbench_v2.SHA256 and made.template.count("$DOC$") == 1


def test_another_prompt_is_refused(made, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("$DOC$ $Q$")
    with pytest.raises(UserError, match=r"the prompt in .*other.txt is not the official one"):
        made(prompts_file=str(other))
    other.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"prompts_file='.*other.txt' cannot be read"):
        made(prompts_file=str(other))


def test_only_rows_of_the_chosen_lengths_are_read(made, embedded):
    assert [sample.meta["length"] for sample in made(lengths="medium").samples(embedded.tokenizer)] == ["medium"]
    assert [row["_id"] for row in made(num_samples=2).rows] == ["row-0", "row-1"]
    assert [row["_id"] for row in made(lengths="long", num_samples=2).rows] == ["row-2"]
    with pytest.raises(UserError, match=r"no rows of benchmark.lengths=\['long'\]"):
        made(longbench_v2_rows()[:2], lengths="long")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"answer": "E"}, "row 1: answer 'E' is not one of A, B, C, D"),
        ({"difficulty": "mid"}, "row 1: difficulty 'mid' is not one of easy, hard"),
        ({"choice_C": None}, "row 1: field 'choice_C' is null"),
        ({"context": " "}, "row 1: field 'context' is empty"),
    ],
)
def test_a_fault_in_a_row_is_named(made, changes, message):
    with pytest.raises(UserError, match=rf"data.json, {message}"):
        made([longbench_v2_rows()[0] | changes])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_length": 10}, "benchmark.max_length=10 must be an integer of at least 64"),
        ({"lengths": "tiny"}, "unknown length in benchmark.lengths 'tiny'"),
        ({"data_dir": "/nowhere"}, "benchmark.data_dir='/nowhere' is not a folder"),
    ],
)
def test_a_wrong_value_is_one_line(made, changes, message):
    with pytest.raises(UserError, match=message):
        made(**changes)


def test_the_table_is_the_official_one(made):
    records = pd.DataFrame(
        {
            "task": "longbench_v2",
            "setting": "full",
            "sample": list("abcdef"),
            "difficulty": ["easy", "hard", "hard", "easy", "hard", "hard"],
            "length": ["short", "short", "short", "medium", "medium", "long"],
            "scores": [{"score": value} for value in (1, 0, 0, 1, 1, 0)],
        }
    )
    table = made().breakdown(records)
    assert dict(zip(table["task"], table["full"], strict=True)) == {
        **{"overall": 50.0, "easy": 100.0, "hard": 25.0, "short": 33.3, "medium": 100.0, "long": 0.0}
    }
    assert table["samples"].tolist() == [6, 2, 4, 3, 2, 1]
    assert made().longest == 4000 + 64 + 128
