"""Chat templates are programs that come with a model: within limits of size and of work, and a fault is one line."""

import resource
import sys
from threading import Event, Thread

import pytest

from kvbench.benchmarks.ruler.benchmark import _chat_tokens
from kvbench.errors import UserError
from kvbench.models import LoadedModel
from kvbench.utils.chat_template import bounded

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
    "a text repeated by a variable": (
        "{% set n = messages | length * 999999 %}{{ 'x' * n * n }}",
        "takes more than 1,073,741,824 bytes for one prompt",
    ),
    "a text that doubles itself": (
        "{% set s = namespace(x='x') %}{% for i in range(60) %}{% set s.x = s.x ~ s.x %}{% endfor %}{{ s.x }}",
        "takes more than 1,073,741,824 bytes for one prompt",
    ),
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
    trace, memory = sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(UserError) as error:
        loaded(template).render("Hello", chat=True)
    assert str(error.value).startswith("the chat template of smollm2-135m ") and message in str(error.value)
    assert str(error.value).endswith("(model.chat_template=none gives the model raw text)")
    assert sys.gettrace() is trace and resource.getrlimit(resource.RLIMIT_AS) == memory


@pytest.mark.heavy
def test_transformers_own_tags_are_allowed(loaded):
    template = "{% for m in messages %}{%- generation -%}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert loaded(template).render("Hello", chat=True) == "Hello"


@pytest.mark.heavy
def test_a_template_may_look_at_all_later_messages_from_each(loaded):
    """Gemma-4's does: chats of 300 messages were refused, as taking too many steps."""
    look = "{% if messages[at].get('role') == 'tool' %}{{ at }}{% endif %}" * 2
    later = "{% for at in range(loop.index0, messages | length) %}" + look + "{% endfor %}"
    template = "{% for m in messages %}" + later + "{{ m.content }}{% endfor %}"
    history = [("user", "a"), ("assistant", "b")] * 200
    assert loaded(template).render("c", chat=True, history=history) == "ab" * 200 + "c"


@pytest.mark.heavy
def test_ruler_counts_a_template_within_the_same_limits(loaded):
    with pytest.raises(UserError, match="takes more than 5,000,000 steps"):
        _chat_tokens(loaded(LOOPS).tokenizer)


def test_threads_leave_the_limit_of_memory_as_it_was():
    """It is the process's: a thread that was within another's limit would restore that one."""
    before, inside, others, leave = resource.getrlimit(resource.RLIMIT_AS), Event(), Event(), [Event(), Event()]

    def render(entered: Event, until: Event) -> None:
        with bounded("a"):
            entered.set()
            until.wait(60)

    threads = [Thread(target=render, args=pair) for pair in zip((inside, others), leave, strict=True)]
    threads[0].start()
    inside.wait(60)
    threads[1].start()
    others.wait(0.2)  # it waits for the first
    for thread, event in zip(threads, leave, strict=True):
        event.set()
        thread.join(60)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
