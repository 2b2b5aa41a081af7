"""scripts/results/essay_prompts.py: as many essays as are asked for, or none."""

import pytest

from scripts.results import essay_prompts


def test_fewer_essays_of_so_many_words_than_are_asked_for_are_refused(tmp_path, monkeypatch):
    for name, words in (("a", 3), ("b", 2), ("c", 4)):
        (tmp_path / f"{name}.txt").write_text("word " * words, encoding="utf-8")
    monkeypatch.setattr(essay_prompts, "published_essays", lambda: tmp_path)
    assert [row["id"] for row in essay_prompts.rows(words=3, count=2)] == ["a", "c"]
    with pytest.raises(SystemExit, match="--count 3: 2 essays have 3 words"):
        essay_prompts.rows(words=3, count=3)
