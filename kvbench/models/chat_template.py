"""Chat templates, which come with a model and are programs: rendered within limits of size and of work."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType

from jinja2 import Environment, nodes

from kvbench.errors import UserError

LARGEST = 1_000_000  # characters
STEPS = 5_000_000  # lines of the compiled template and of what it calls; real ones take some thousands
FACTOR = 1_000_000  # of a multiplication, which repeats a text

RAW = "(model.chat_template=none gives the model raw text)"


@lru_cache(8)
def check_template(name: str, template: str) -> None:
    """Refuse a template that is too large to compile, and powers and products that are too large to compute.

    Raises UserError, and jinja2's TemplateError where it is no template. transformers' sandbox has no such limits.
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


def _without_generation(template: str) -> str:
    """Without transformers' own tag, which marks what the assistant writes."""
    return re.sub(r"\{%[-+]?\s*(end)?generation\s*[-+]?%\}", "", template)


@contextmanager
def bounded(name: str, most: int = STEPS) -> Iterator[None]:
    """Raise UserError within the block after so many lines of Python: nested loops could run for years."""
    left = most

    def step(frame: FrameType, event: str, argument: object):
        nonlocal left
        left -= 1
        if left < 0:
            raise UserError(f"the chat template of {name} takes more than {most:,} steps for one prompt {RAW}")
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)
