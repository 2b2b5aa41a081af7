"""The base of scorings that use the attention of a window of last queries."""

from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator

from kvbench.errors import UserError
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import Needs
from kvbench.utils.checked import Positive, checked


def _odd(kernel: int) -> int:
    if kernel % 2 == 0:
        raise UserError(f"kernel={kernel} is even: a pooling kernel must be odd to stay aligned")
    return kernel


Kernel = Annotated[Positive, AfterValidator(_odd)]  # width of a pooling along positions


@checked
class Window(Scoring):
    """A score from the last `window` queries, whose tokens always stay."""

    window: Positive = 32

    @cached_property
    def needs(self) -> Needs:
        return Needs(window=self.window)
