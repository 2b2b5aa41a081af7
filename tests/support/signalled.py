"""`python -m tests.support.signalled COUNT SIGNAL ARGUMENTS`: kvbench, which gets SIGNAL with its COUNTth record."""

import os
import signal
import sys

from kvbench import cli
from kvbench.records.store import Store


def main() -> None:
    count, name, *sys.argv[1:] = sys.argv[1:]
    append = Store.append

    def signalled(store: Store, record: dict) -> None:
        append(store, record)
        if len(store.done) == int(count):
            os.kill(os.getpid(), signal.Signals[name])

    Store.append = signalled
    cli.main()


if __name__ == "__main__":
    main()
