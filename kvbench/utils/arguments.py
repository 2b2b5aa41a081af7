"""Arguments of the commands beside `kvbench` itself."""

import argparse
from typing import Any, NoReturn

from kvbench.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises its errors as UserError, with the headings of kvbench's other help texts."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._positionals.title = "arguments"

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} ({self.prog} --help)")
