"""RepoQA's metric: the function in a prediction, and what it is most similar to."""

import sys
from types import SimpleNamespace

import pytest

from kvbench.errors import UserError
from kvbench.metrics import repoqa
from tests.support.needs import need, packages
from tests.support.scbench import CODE

CANDIDATES = list(CODE.items())


def test_similarity_is_bleu_of_words_between_blanks():
    assert repoqa.bleu(CODE["blue"], CODE["blue"]) == 1
    assert repoqa.bleu("  " + CODE["blue"].replace("\n", "\n\n"), CODE["blue"]) == 1
    assert repoqa.bleu("a b c d", "e f g h") == 0
    assert repoqa.bleu("", CODE["blue"]) == 0
    # precisions 4/5, 3/4, 2/3 and 1/2 of equally long texts
    assert repoqa.bleu("a b c d x", "a b c d e") == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


@pytest.mark.parametrize(
    "prediction, name, expected",
    [
        (CODE["blue"], "blue", 1),
        (CODE["blue"], "red", 0),
        (CODE["blue"].replace("total", "summed"), "blue", 0),  # too little is equal
        ("something else", "blue", 0),
        ("", "blue", 0),
    ],
)
def test_the_right_function_must_be_the_most_similar_one(prediction, name, expected):
    """Texts without a fenced block are compared as they are, which needs no parser."""
    assert repoqa.score(prediction, name, CANDIDATES, "python") == expected


def test_functions_are_those_of_their_repository_each_once():
    functions = [("a", "f", "1"), ("b", "f", "2"), ("a", "f", "1"), ("a", "f", "3")]
    assert repoqa.by_repository(functions) == {"a": [("f", "1"), ("f", "3")], "b": [("f", "2")]}


class Node:
    """A node of a syntax tree, as far as it is read."""

    def __init__(self, type, start=0, end=0, children=(), **fields):
        self.type, self.start_byte, self.end_byte = type, start, end
        self.children, self.fields = list(children), fields

    def child_by_field_name(self, name):
        return self.fields.get(name)


def test_a_fenced_block_is_searched_for_the_first_function(monkeypatch):
    """Without the parsers, on a tree of our own: the official queries' nodes, in the order of the text."""
    inner = Node("function_definition", 6, 9, declarator=Node("function_declarator", declarator=Node("identifier")))
    method = Node("function_definition", 0, 5, declarator=Node("function_declarator", declarator=Node("field")))
    pointer = Node("function_definition", 0, 5, declarator=Node("pointer_declarator"))
    later = Node("function_definition", 9, 12, declarator=inner.fields["declarator"])
    tree = Node("unit", children=[method, pointer, Node("struct", children=[inner]), later])

    class Parser:
        def parse(self, code):
            return Node("tree", root_node=None) if code == b"none\n" else type("Tree", (), {"root_node": tree})

    monkeypatch.setattr(repoqa, "_parser", lambda lang: Parser())
    assert repoqa.function_in("text\n```cpp\n0123456789ab\n```\nmore", "cpp") == "678"


def test_blocks_without_a_function_are_taken_whole(monkeypatch):
    class Parser:
        def parse(self, code):
            return type("Tree", (), {"root_node": Node("unit")})

    monkeypatch.setattr(repoqa, "_parser", lambda lang: Parser())
    assert repoqa.function_in("x\n```\nfirst\n```\n```go\nsecond\n```", "go") == "first\n"
    assert repoqa.function_in("  x ``` no block ```\n", "go") == "x ``` no block ```"


@pytest.mark.parametrize(
    "lang, code",
    [
        ("python", "import os\n\n\ndef f(a):\n    return a\n\n\nx = 1\n"),
        ("java", "class A {\n  int f(int a) { return a; }\n}\n"),
        ("typescript", "const q = 1;\nfunction f(a: number) { return a; }\n"),
        ("rust", "use std;\nfn f(a: i32) -> i32 { a }\n"),
        ("cpp", "struct S { int g() { return 1; } };\nint f(int a) { return a; }\n"),
        ("go", "package x\nfunc f(a int) int { return a }\n"),
    ],
)
def test_the_parsers_find_the_function(lang, code):
    need("repoqa", packages("repoqa", f"tree_sitter_{lang}"))
    start = {"python": "def f", "java": "int f", "typescript": "function f", "rust": "fn f", "cpp": "int f"}.get(
        lang, "func f"
    )
    found = repoqa.function_in(f"```{lang}\n{code}```", lang)
    assert found.startswith(start) and found == found.strip()


def test_a_missing_parser_is_one_line(monkeypatch):
    monkeypatch.setattr(repoqa, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"tree-sitter is not installed: pip install 'kvbench\[repoqa\]'"):
        repoqa.check_parsers()


def test_a_language_of_data_names_no_other_module(monkeypatch):
    """A stranger's sample chose the end of an imported module's name."""
    monkeypatch.setitem(sys.modules, "tree_sitter", SimpleNamespace(Language=None, Parser=None))
    imported = []
    monkeypatch.setattr(repoqa, "import_module", imported.append)
    with pytest.raises(KeyError, match="evil"):
        repoqa.function_in("```\nf\n```", "evil")
    assert not imported
