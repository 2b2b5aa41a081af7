"""Arguments of the commands beside `kvbench` itself."""

import argparse

from kvbench.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises its errors as UserError."""

    def error(self, message: str):
        raise UserError(f"{message} ({self.prog} --help)")
