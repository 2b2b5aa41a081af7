"""A command: words in the predictions of runs."""

from kvbench.errors import UserError
from kvbench.records import load

USAGE = """usage: kvbench words FOLDER ...

Count the words of every setting's predictions."""


def main(arguments):
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    if not arguments:
        raise UserError("name a FOLDER of records (kvbench words --help)")
    records = load(*arguments)
    for setting, words in records["prediction"].str.split().str.len().groupby(records["setting"]).sum().items():
        print(f"{setting}: {words}")
    return 0
