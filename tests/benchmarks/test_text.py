"""A text of one's own, scored behind compressed caches."""

import pytest

from kvbench.benchmarks import Text
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise

SENTENCES = " ".join(f"The {place} opens at {hour}." for hour in range(40) for place in ("market", "harbour", "mill"))


@pytest.fixture
def written(tmp_path):
    """Options → the benchmark of a file with SENTENCES."""

    def write(text=SENTENCES, **options):
        path = tmp_path / "text.txt"
        path.write_text(text, encoding="utf-8")
        return Text(path=str(path), **options)

    return write


def test_windows_follow_each_other_and_together_are_the_text(written, embedded):
    samples = written(length=40, scored=20, windows=3).samples(embedded.tokenizer)
    assert [sample.meta["start"] for sample in samples] == [0, 60, 120]
    together = "".join(sample.prompt + sample.continuation for sample in samples)
    assert SENTENCES.startswith(together)


def test_a_context_has_the_requested_tokens_and_fits_what_the_benchmark_says(written, embedded):
    benchmark = written(length=40, scored=20)
    for sample in benchmark.samples(embedded.tokenizer):
        prompt = tokenise(embedded, sample, "visible")
        assert abs(len(prompt.context) - 40) <= 2
        assert len(prompt.context) + prompt.new_tokens <= benchmark.longest


def test_no_window_cuts_a_character_of_several_tokens(written, embedded):
    """Halves of characters were read and scored as U+FFFD, in four windows of five of a Chinese text."""
    text = "北京是中华人民共和国的首都，位于华北平原的北部。👩‍👧 " * 40
    benchmark = written(text, length=40, scored=21)
    samples = benchmark.samples(embedded.tokenizer)
    assert len(samples) == 20 and text.startswith("".join(sample.prompt + sample.continuation for sample in samples))
    for sample in samples:
        prompt = tokenise(embedded, sample, "visible")
        assert abs(len(prompt.context) - 40) <= 5 and len(prompt.context) + prompt.new_tokens <= benchmark.longest


def test_a_byte_order_mark_is_no_part_of_the_text(written, embedded):
    plain, marked = (
        written(mark + SENTENCES, length=40, scored=20).samples(embedded.tokenizer) for mark in ("", "\ufeff")
    )
    assert marked == plain


def test_a_text_to_score_that_is_read_as_one_token_is_told(written, embedded):
    """Two line ends join to one token when they are read alone, which left nothing to score: a traceback."""
    with pytest.raises(UserError, match=r"text\.txt.*behind token 22 is read as one token.*benchmark\.scored=2"):
        written("w\n\n" * 20, length=22, scored=2).samples(embedded.tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": None}, "set benchmark.path=FILE"),
        ({"path": "no/such.txt"}, "no/such.txt"),
        ({"scored": 1025}, "at most 1,024"),
        ({"scored": 1}, "2 are the fewest"),
        ({"length": 0}, "length"),
    ],
)
def test_wrong_values_are_named(tmp_path, options, message):
    (tmp_path / "text.txt").write_text("words", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        Text(**{"path": str(tmp_path / "text.txt")} | options)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UserError, match=r"text\.txt.*UTF-8"):
        Text(path=str(tmp_path / "text.txt"))


def test_windows_of_one_text_are_one_unit_and_a_folder_has_several(written, embedded, tmp_path, capsys):
    """They were taken for texts that were drawn independently, and an interval was too narrow."""
    alone = written(length=40, scored=20, windows=3)
    one = alone.samples(embedded.tokenizer)
    assert len(one) == 3 and len({sample.unit for sample in one}) == 1
    (tmp_path / "other.txt").write_text(SENTENCES.upper(), encoding="utf-8")
    (tmp_path / "short.txt").write_text("Too short.", encoding="utf-8")
    (tmp_path / "notes.md").write_text("No text.", encoding="utf-8")
    both = Text(path=str(tmp_path), length=40, scored=20, windows=3).samples(embedded.tokenizer)
    assert [sample.id for sample in both[::3]] == ["other.txt token-0", "text.txt token-0"] and len(both) == 6
    assert len({sample.unit for sample in both}) == 2 and [x.prompt for x in both[3:]] == [x.prompt for x in one]
    assert "1 of 3 texts" in capsys.readouterr().err


def test_a_folder_without_texts_and_one_of_short_texts_are_refused(tmp_path, embedded):
    with pytest.raises(UserError, match=r"is a folder without a \.txt file"):
        Text(path=str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("Three short words.", encoding="utf-8")
    with pytest.raises(UserError, match="has no text of more than 4 tokens, fewer than one window"):
        Text(path=str(tmp_path)).samples(embedded.tokenizer)


@pytest.mark.parametrize(("tokens", "starts"), [(119, [0]), (120, [0, 60])])
def test_every_window_is_whole_and_the_last_may_end_with_the_text(written, embedded, tokens, starts):
    samples = written("and" + " and" * (tokens - 1), length=40, scored=20).samples(embedded.tokenizer)
    assert [sample.meta["start"] for sample in samples] == starts


def test_a_text_shorter_than_one_window_is_refused(written, embedded):
    with pytest.raises(UserError, match=r"fewer than one window of benchmark.length=4000"):
        written(length=4000).samples(embedded.tokenizer)
