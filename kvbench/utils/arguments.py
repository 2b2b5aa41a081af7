"""Arguments of the commands beside `kvbench` itself."""

import argparse

from kvbench.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line, as all of kvbench's are."""

    def error(self, message: str):
        raise UserError(f"{message} ({self.prog} --help)")
