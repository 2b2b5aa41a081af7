"""Needle in a Haystack: where the needle lies, how long the prompt is, what counts as found."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.benchmarks import NeedleInAHaystack, Sample, haystack
from kvbench.benchmarks.base import data_hash
from kvbench.benchmarks.niah.grid import seed_of
from kvbench.benchmarks.niah.placement import at_sentence_ends
from kvbench.errors import UserError
from kvbench.metrics.needle import exact_number, leading_digits


def grid(**changes):
    config = {"lengths": [512, 1024], "depths": [0, 25, 50, 75, 100], "sentence": "A b c.", "question": "What?"}
    return NeedleInAHaystack(**(config | changes))


def test_the_prompt_has_the_asked_length_with_its_template(embedded):
    for sample in grid(lengths=[512, 1024, 3000]).samples(embedded.tokenizer):
        tokens = len(embedded.encode(sample.prompt, sample.chat))
        assert sample.meta["length"] - 150 < tokens <= sample.meta["length"]


def test_the_needle_lies_at_its_depth_between_two_sentences(embedded):
    benchmark = grid(lengths=[2048])
    for sample in benchmark.samples(embedded.tokenizer):
        needle, question, _ = benchmark._needle(seed_of(2048, sample.meta["depth"], 0))
        assert sample.prompt.count(needle) == 1
        context = sample.prompt.split("\n\n")[1]
        before, after = (part.strip() for part in context.split(needle))
        depth = sample.meta["depth"]
        assert not before or before[-1] in ".!?" or depth == 100  # appended wherever the text was cut
        # back to the end of a sentence: at most a sentence before the exact depth
        tokens = [len(embedded.tokenizer(text)["input_ids"]) if text else 0 for text in (before, after)]
        assert depth / 100 - 0.03 <= tokens[0] / sum(tokens) <= depth / 100 + 0.001
        assert sample.prompt.endswith(question)
        assert (depth == 0) == (not before)
        assert (depth == 100) == (not after)


@given(depth=st.floats(0, 99.9), seed=st.integers(0, 3))
def test_nothing_of_the_haystack_is_lost_or_doubled_by_the_needle(embedded, depth, seed):
    source = haystack.generated(seed)
    text = "".join(next(source) for _ in range(12))
    ids = embedded.tokenizer(text)["input_ids"]
    context = at_sentence_ends(ids, [(depth, "NEEDLE.")], embedded.tokenizer)
    assert context.replace("NEEDLE.", "").split() == text.split()


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(embedded):
    first, second = (grid(seeds=2).samples(embedded.tokenizer) for _ in range(2))
    assert first == second
    assert data_hash(first) == data_hash(second)
    assert len({sample.id for sample in first}) == len(first) == 20
    assert data_hash(first) != data_hash(grid(seeds=1).samples(embedded.tokenizer))


def test_every_cell_and_seed_has_a_number_and_a_text_of_its_own(embedded):
    samples = grid(seeds=2).samples(embedded.tokenizer)
    assert len({sample.answers for sample in samples}) == len({sample.unit for sample in samples}) == 20
    texts = [set(sample.prompt.split("\n\n")[1].split(". ")) for sample in samples]
    assert all(len(a & b) <= 2 for i, a in enumerate(texts) for b in texts[:i])


def test_a_cell_is_the_same_in_every_grid(embedded):
    alone, among = (grid(lengths=lengths).samples(embedded.tokenizer) for lengths in ([1024], [512, 1024]))
    assert alone == [sample for sample in among if sample.meta["length"] == 1024]


def test_cells_that_begin_with_the_same_file_are_about_one_text(embedded, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"The {name} ship left the harbour at noon. " * 200)
    samples = grid(lengths=[512], depths=[0, 25, 50, 75, 100], seeds=3, haystack_dir=str(tmp_path)).samples(
        embedded.tokenizer
    )
    shared = {sample.unit: max("abc", key=lambda name: sample.prompt.count(f"The {name} ship")) for sample in samples}
    assert {"text 0": "a", "text 1": "b", "text 2": "c"}.items() >= shared.items() and len(shared) > 1


def test_the_generated_haystack_holds_no_digit_and_no_city():
    source = haystack.generated(0)
    text = "".join(next(source) for _ in range(3000))
    assert not any(c.isdigit() for c in text)
    assert "Lisbon" not in text
    assert "{" not in text


def test_a_folder_of_texts_is_read_in_order_and_over_again(tmp_path):
    (tmp_path / "b.txt").write_text("Second.")
    (tmp_path / "a.txt").write_text("First.")
    (tmp_path / "notes.md").write_text("Not this.")
    source = haystack.from_folder(str(tmp_path), 0)
    assert [next(source) for _ in range(3)] == ["First.\n", "Second.\n", "First.\n"]
    assert next(haystack.from_folder(str(tmp_path), 1)) == "Second.\n"


def test_the_data_hash_of_samples_without_later_fields_is_that_of_earlier_versions():
    plain = Sample("s", "p", ("a",), 3)
    assert data_hash([plain]) == "09d91105648b49a57624e7cfdf6f13211921e7ff9eb328a3c661e8f1bd3230cb"
    assert data_hash([plain]) != data_hash([replace(plain, single_stop=True)])


@pytest.mark.parametrize(
    "content, message", [(None, "is not a folder"), (b"\xff\xfe bad", "is not UTF-8"), (b"  \n", "only empty texts")]
)
def test_a_bad_haystack_folder_is_named(tmp_path: Path, content, message):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        haystack.from_folder(str(tmp_path), 0)


@pytest.mark.parametrize(
    "prediction, digits, exact",
    [
        ("The secret number is 7481925.", 1, 1),
        ("7,481,925", 1, 1),
        ("7481900", 5 / 7, 0),
        ("it is 12 or 7481", 4 / 7, 0),
        ("74819255", 1, 0),
        ("17481925", 0, 0),
        ("1234567,7481925", 1, 1),
        ("7481925,1234567", 1, 1),
        ("1,234,567 and 7,481,925", 1, 1),
        ("1,234,567,7,481,925", 1, 1),
        ("7481925,123,4567", 1, 1),  # no number has 7481925 thousands
        ("123,7481925", 1, 1),
        ("748,1925", 3 / 7, 0),
        ("7481,925", 4 / 7, 0),
        ("no idea", 0, 0),
        ("", 0, 0),
    ],
)
def test_number_scores(prediction, digits, exact):
    assert leading_digits("7481925", prediction) == pytest.approx(digits)
    assert exact_number("7481925", prediction) == exact


def test_the_sentence_needle_is_scored_by_rouge(embedded):
    benchmark = grid(needle="sentence", sentence="Eat a sandwich in the park.", question="What to do?")
    sample = benchmark.samples(embedded.tokenizer)[0]
    assert benchmark.score(sample, "You should eat a sandwich in the park.")["rouge1"] == pytest.approx(6 / 7)


def test_a_folder_named_like_a_text_is_no_haystack(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UserError, match=r"is not a folder with \.txt files"):
        next(haystack.from_folder(str(tmp_path), 0))
    (tmp_path / "b.txt").write_text("the text")
    assert next(haystack.from_folder(str(tmp_path), 0)) == "the text\n"
