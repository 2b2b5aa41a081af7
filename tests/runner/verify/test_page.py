"""The page of `kvbench verify`, whose notes have a stranger's names."""

from pathlib import Path

from markdown_it import MarkdownIt

from kvbench.runner.verify.page import markdown
from kvbench.runner.verify.verdict import Check, Verdict

NAMES = (r"sample '[prize](http://a.b)' | \|", "<img src=x>", "a*b*", r"c\|d")


def test_names_of_strangers_are_text_in_one_cell():
    r"""A sample `[prize](http://a.b)` was a link, and one with `\|` began another column."""
    text = markdown([(Path("<b>run"), [Check("samples", Verdict.WRONG, "what", NAMES)])])
    tokens = [token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.type == "inline"]
    assert {child.type for token in tokens for child in token.children} == {"text"}
    shown = ["".join(child.content for child in token.children) for token in tokens]
    assert "<b>run" in shown and "; ".join(NAMES) in shown
