"""Where needles lie."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.benchmarks import haystack
from kvbench.benchmarks.niah import placement
from tests.support.niah import TESTERS, benchmark, text_tokens


@given(depth=st.floats(0, 100), length=st.integers(0, 300))
def test_kamradts_rule_moves_back_to_the_nearest_full_stop(embedded, depth, length):
    text = text_tokens(embedded, 300)[:length]
    needle = [-1, -2]
    placed = placement.at_period(text, needle, depth, embedded.tokenizer)
    at = placed.index(-1)
    assert placed[at : at + 2] == needle
    assert placed[:at] + placed[at + 2 :] == text
    if depth == 100:
        assert at == length
        return
    wanted = int(length * (depth / 100))
    stops = [i for i in range(wanted) if embedded.tokenizer.decode(text[i]) == "."]
    assert at == (stops[-1] + 1 if stops else 0)


def test_full_stops_of_sentencepiece_count_too():
    class Llama2:
        unk_token_id = 0

        def convert_tokens_to_ids(self, tokens):
            return [{".": 29889, "▁.": 869}.get(token, 0) for token in tokens]

    text = [7, 869, 7, 0, 29889, 7, 7]
    places = [placement.at_period(text, [-1], depth, Llama2()).index(-1) for depth in (20, 40, 70, 75, 99)]
    assert places == [0, 2, 2, 5, 5]  # an unknown token is none


def test_kvpress_places_the_needle_at_the_very_token():
    assert placement.at_token([1, 2, 3, 4], [9], 50, None) == [1, 2, 9, 3, 4]
    assert placement.at_token([1, 2, 3, 4], [9], 0, None) == [9, 1, 2, 3, 4]
    assert placement.at_token([1, 2, 3, 4], [9], 100, None) == [1, 2, 3, 4, 9]


class Letters:
    """A tokenizer whose tokens are characters."""

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_no_needle_parts_a_number_a_name_or_a_quotation_from_its_end():
    """A haystack's "$2.5 million" became "$2. The secret number of Oslo is 1234567. 5 million"."""
    sentences = [
        "It cost $2.5 million.",
        'She said "No."',
        "Is it on name.org?",
        "(They did not know.)",
        "Why?!",
        "Web 2.0!",
    ]
    text = [*map(ord, " ".join(sentences))]
    placed = [placement.at_sentence_ends(text, [(depth, "<N>")], Letters()) for depth in range(100)]
    between = {" ".join([*sentences[:i], "<N>", *sentences[i:]]) for i in range(len(sentences))}
    assert set(placed) == between


def test_a_text_that_is_cut_within_a_character_ends_before_it(embedded):
    ids = placement.encode("他们回家了。" * 10, embedded.tokenizer)
    texts = [embedded.tokenizer.decode(ids[:length]) for length in range(20, 40)]
    assert any(text.endswith("\ufffd") for text in texts)
    for length in range(20, 40):
        for depth in (50, 100):
            placed = placement.at_sentence_ends(ids[:length], [(depth, "<N>")], embedded.tokenizer)
            assert "\ufffd" not in placed and "<N>" in placed


@pytest.mark.parametrize(
    "sentence", ["They went home. ", "他们回家了。", "彼は帰った！", "إلى أين ذهبوا؟ ", "वे घर चले गए। "]
)
def test_depths_hold_in_scripts_with_other_full_stops(sentence):
    """In a Chinese haystack every needle was at the start of the text, whatever its depth."""
    text = [*map(ord, sentence * 40)]
    placed = placement.at_sentence_ends(text, [(depth, f"<{depth}>") for depth in (25, 50, 75)], Letters())
    first, *others, last = [part.strip() for part in re.split(r"<\d+>", placed)]
    assert [len(part.replace(" ", "")) for part in (first, *others, last)] == [len(sentence.replace(" ", "")) * 10] * 4


def test_testers_join_all_texts_in_order_of_their_names_without_a_gap(embedded, tmp_path):
    (tmp_path / "b.txt").write_text("And so it went on. " * 40)
    (tmp_path / "a.txt").write_text("It began here.")
    for name in TESTERS:
        grid = benchmark(name, "lengths=[400]", "depths=[100]", f"haystack_dir={tmp_path}")
        (sample,) = grid.samples(embedded.tokenizer)
        assert "It began here.And so it went on. And so it went on. " in sample.prompt


def test_hidden_files_of_a_folder_are_no_texts(tmp_path):
    """macOS writes ._a.txt beside a.txt: its bytes were a part of prompts."""
    (tmp_path / "a.txt").write_text("It began here.")
    (tmp_path / "._a.txt").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
    assert [path.name for path in haystack.files_of(str(tmp_path))] == ["a.txt"]


@pytest.mark.heavy
def test_a_grid_tokenises_its_haystack_once(embedded, monkeypatch):
    seen = []
    real = placement.encode
    monkeypatch.setattr(placement, "encode", lambda text, tokenizer: seen.append(len(text)) or real(text, tokenizer))
    samples = benchmark("niah_pyramidkv").samples(embedded.tokenizer)
    assert len(samples) == len({sample.id for sample in samples}) == 710
    assert sum(size > 1000 for size in seen) == 1
