"""Chat templates are programs that come with a model: within limits of size and of work, and a fault is one line."""

import sys

import pytest

from kvbench.errors import UserError
from kvbench.models import LoadedModel

LOOPS = "{% for i in range(9999) %}" * 4 + "{% endfor %}" * 4
FAULTS = {
    "nested loops": (LOOPS, "takes more than 5,000,000 steps for one prompt"),
    "a macro that calls itself twice": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "takes more than 5,000,000 steps for one prompt",
    ),
    "a template of a megabyte": ("x" * 1_000_001, "has 1,000,001 characters, more than 1,000,000"),
    "a power": ("{{ 9 ** 9 ** 9 }}", "computes a power, which can take for ever"),
    "a text repeated": ("{{ 'x' * 10000000000 }}", "repeats something 10,000,000,000 times"),
    "a type error": ("{{ messages[0].content + 5 }}", "fails: can only concatenate str"),
    "a syntax error": ("{% if %}", "fails: Expected an expression"),
    "nothing": ("", "writes nothing"),
    "blanks": ("{% for m in messages %} {% endfor %}", "writes nothing"),
}


@pytest.fixture
def loaded(embedded):
    """The embedded model with a template → a LoadedModel; the tokenizer has its own template again afterwards."""
    before = embedded.tokenizer.chat_template

    def make(template: str) -> LoadedModel:
        embedded.tokenizer.chat_template = template
        return embedded

    yield make
    embedded.tokenizer.chat_template = before


@pytest.mark.heavy
@pytest.mark.parametrize("template, message", FAULTS.values(), ids=FAULTS)
def test_a_template_that_cannot_be_rendered_is_one_line(template, message, loaded):
    trace = sys.gettrace()
    with pytest.raises(UserError) as error:
        loaded(template).render("Hello", chat=True)
    assert str(error.value).startswith("the chat template of smollm2-135m ") and message in str(error.value)
    assert str(error.value).endswith("(model.chat_template=none gives the model raw text)")
    assert sys.gettrace() is trace


@pytest.mark.heavy
def test_transformers_own_tags_are_allowed(loaded):
    template = "{% for m in messages %}{%- generation -%}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert loaded(template).render("Hello", chat=True) == "Hello"
