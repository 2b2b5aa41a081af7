"""`python -m tests.support.signalled COUNT SIGNAL … ARGUMENTS`: kvbench; the signals come with its COUNTth record."""

import os
import signal
import sys

from kvbench import __main__ as command
from kvbench.records.store import Store


def main() -> None:
    count, *rest = sys.argv[1:]
    names = [word for word in rest if word in signal.Signals.__members__]
    sys.argv[1:] = rest[len(names) :]
    append = Store.append

    def signalled(store: Store, record: dict) -> None:
        append(store, record)
        if len(store.done) == int(count):
            for name in names:
                os.kill(os.getpid(), signal.Signals[name])

    Store.append = signalled
    command.main()


if __name__ == "__main__":
    main()
