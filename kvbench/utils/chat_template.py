"""Chat templates, which are programs that come with a model: rendered within limits of size, steps and memory."""

import re
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any, Protocol

from jinja2 import Environment, nodes

from kvbench.errors import UserError
from kvbench.utils.tokenizer import Tokenizer

LARGEST = 1_000_000  # characters
STEPS = 5_000_000  # lines of the compiled template and of its calls; real ones take some thousands
PAIR = 200  # more of them for each two messages: Gemma-4's template looks at all later messages from each, and takes 62
FACTOR = 1_000_000  # largest in a multiplication, which may repeat a text
ROOM = 2**30  # bytes for one prompt: a text that doubles itself needs few steps
PAGES = Path("/proc/self/statm")
_LIMITED = Lock()

# Put before chat templates that write today's date, so that prompts are the same every day: the default of Llama-3.1's
# template.
SAME_DAY = (
    "{%- macro strftime_now(format) -%}{{ {'%Y-%m-%d': '2024-07-26', '%d %B %Y': '26 July 2024'}"
    ".get(format, '26 Jul 2024') }}{%- endmacro -%}"
)
# The attributes of a tokenizer that `as_read` sets.
_ARGUMENTS = "kvbench_template_arguments"
_RAW = "kvbench_raw_text"

# In the place of a text, a mark shows what the template writes around it. Texts from PDF files have such characters,
# too: beside a text, `mark_beside` gives one that it does not have.
MARKS = range(0xE000, 0xF900)  # Unicode's characters for private use
MARK = chr(MARKS[0])
RAW = "(model.chat_template=none gives the model raw text)"


def mark_beside(*texts: str) -> str:
    """A character that none of the texts has, to be found in what a template writes of them.

    Raises UserError for texts with all characters for private use.
    """
    for mark in map(chr, MARKS):
        if not any(mark in text for text in texts):
            return mark
    raise UserError("a prompt has all of Unicode's characters for private use: its question has no place of its own")


@lru_cache(8)
def check_template(name: str, template: str) -> None:
    """Refuse a template that is too large to compile, and powers and products that are too large to compute.

    Raises UserError, and jinja2's TemplateError if it is no template. transformers' sandbox has no such limits.
    """
    if len(template) > LARGEST:
        raise UserError(f"the chat template of {name} has {len(template):,} characters, more than {LARGEST:,} {RAW}")
    tree = Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"]).parse(_without_generation(template))
    if tree.find(nodes.Pow) is not None:
        raise UserError(f"the chat template of {name} computes a power, which can take for ever {RAW}")
    for product in tree.find_all(nodes.Mul):
        for side in (product.left, product.right):
            if isinstance(side, nodes.Const) and isinstance(side.value, int) and side.value > FACTOR:
                raise UserError(f"the chat template of {name} repeats something {side.value:,} times {RAW}")


def template_of(tokenizer: Tokenizer) -> str:
    """The chat template of a tokenizer that has one."""
    template: str = tokenizer.get_chat_template()
    return SAME_DAY + template if "strftime_now" in template else template


def as_read(tokenizer: Tokenizer, chat_template: str, arguments: Mapping[str, Any] | None) -> Tokenizer:
    """The tokenizer itself, with what its model makes of the chat template (model.chat_template, model.template_args).

    Benchmarks see a tokenizer and no model, and those that count the template's tokens need what the model reads.
    """
    setattr(tokenizer, _RAW, chat_template == "none")
    setattr(tokenizer, _ARGUMENTS, {**(arguments or {})})
    return tokenizer


def templated(tokenizer: Tokenizer) -> bool:
    """Whether the model reads a user's text in the tokenizer's chat template."""
    return bool(tokenizer.chat_template) and not getattr(tokenizer, _RAW, False)


def user_turn(tokenizer: Tokenizer, text: str) -> str:
    """A user's message and the answer's header in the tokenizer's template; the text if the model reads none."""
    if not templated(tokenizer):
        return text
    name, template = str(tokenizer.name_or_path), template_of(tokenizer)
    arguments: Mapping[str, Any] = getattr(tokenizer, _ARGUMENTS, {})
    check_template(name, template)
    with bounded(name):
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            tokenize=False,
            chat_template=template,
            **arguments,
        )


def _without_generation(template: str) -> str:
    """The template without transformers' own tag, which marks the assistant's text."""
    return re.sub(r"\{%[-+]?\s*(end)?generation\s*[-+]?%\}", "", template)


class _Tracer(Protocol):
    """A function for `sys.settrace`."""

    def __call__(self, frame: FrameType, event: str, argument: object, /) -> "_Tracer": ...


@contextmanager
def bounded(name: str, messages: int = 1) -> Iterator[None]:
    """Raise UserError if the block, which writes `messages` of a chat, takes more lines of Python than templates need
    (nested loops could run for years), or more than ROOM bytes of memory.
    """
    left = most = STEPS + PAIR * (messages**2 - 1)

    def step(frame: FrameType, event: str, argument: object) -> _Tracer:
        nonlocal left
        left -= 1
        if left < 0:
            raise UserError(f"the chat template of {name} takes more than {most:,} steps for one prompt {RAW}")
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        with _little_memory():
            yield
    except MemoryError as error:
        raise UserError(f"the chat template of {name} takes more than {ROOM:,} bytes for one prompt {RAW}") from error
    finally:
        sys.settrace(before)


@contextmanager
def _little_memory() -> Iterator[None]:
    """Raise MemoryError if the block needs more than ROOM bytes of addresses; without /proc there is no limit.

    The limit is the whole process's, so threads take turns: the last to leave would restore another's limit.
    """
    with _LIMITED:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = soft
        if PAGES.is_file():
            limit = int(PAGES.read_text().split()[0]) * resource.getpagesize() + ROOM
            limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
