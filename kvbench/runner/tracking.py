"""Weights & Biases, if a configuration requests it. It never stops a run or makes it wait."""

import atexit
import contextlib
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil

from kvbench.configuration.sections import Wandb
from kvbench.utils.hashing import digest
from kvbench.utils.signals import unbroken
from kvbench.utils.text import first_line

if TYPE_CHECKING:
    import wandb

_WAIT = 30  # seconds for a server that does not answer, at the start and again at the end of a run
_EXIT = 10  # seconds for W&B's own process to end after the run


class Tracker:
    """One W&B run for each folder of records and shard: the same command again resumes it.

    Logs the running mean of every setting's score, the table and the figures. The first error of W&B is passed to
    `warn`, and nothing is logged from then on.
    """

    def __init__(self, options: Wandb, name: str, folder: Path, warn: Callable[[str], None]):
        """`options` is the configuration's wandb section; `name` has folder and shard."""
        self.options, self.name, self.folder, self.warn = options, name, folder, warn
        self.run: wandb.Run | None = None
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        with unbroken():
            self.close(failed=kind is not None)

    def start(self, manifest: dict[str, Any]) -> None:
        """Begin or resume the W&B run, with the manifest as its configuration; does nothing if it is disabled."""
        if self.options.mode == "disabled":
            return
        with self._unharmed():
            import wandb

            settings = wandb.Settings(
                console="off",
                silent=True,
                init_timeout=_WAIT,
                finish_timeout=_WAIT,
                finish_timeout_raises=True,
                x_graphql_timeout_seconds=_WAIT,
            )
            with bounded_exit():
                self.run = wandb.init(
                    mode=self.options.mode,
                    project=self.options.project,
                    entity=self.options.entity,
                    id=digest(self.name),
                    name=self.name,
                    resume="allow",
                    dir=self.folder,
                    config=manifest,
                    settings=settings,
                )

    @property
    def active(self) -> bool:
        return self.run is not None

    def record(self, record: dict[str, Any]) -> None:
        """Count a record, and log the mean scores of its setting so far."""
        if self.run is None:
            return
        means = self._counted(record)
        with self._unharmed():
            self.run.log(means)

    def resume(self, records: Iterable[dict[str, Any]]) -> None:
        """Count the records of earlier processes, so that the means of a resumed run are those of all records."""
        if self.run is not None:
            for record in records:
                self._counted(record)

    def _counted(self, record: dict[str, Any]) -> dict[str, float]:
        """The mean scores of a record's setting with this record, by metric and setting."""
        means = {}
        for metric, score in record.get("scores", {}).items():
            total = self.sums[f"{metric}/{record['setting']}"]
            total[0] += score
            total[1] += 1
            means[f"{metric}/{record['setting']}"] = total[0] / total[1]
        return means

    def finish(self, tables: dict[str, pd.DataFrame], figures: Sequence[Path]) -> None:
        """Log tables by name and pictures, and close the run."""
        if self.run is None:
            return
        with self._unharmed():
            import wandb

            logged: dict[str, Any] = {name: wandb.Table(dataframe=table) for name, table in tables.items()}
            logged |= {path.stem: wandb.Image(str(path)) for path in figures if path.suffix == ".png"}
            self.run.log(logged)
        self.close()

    def close(self, failed: bool = False) -> None:
        """Close the run, if it is still open."""
        if self.run is not None:
            with self._unharmed():
                self.run.finish(exit_code=int(failed))
            self.run = None

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # W&B's own kinds of errors, the network's, the disk's: none may stop a run
            self.warn(f"logging to Weights & Biases has stopped: {first_line(error)}")
            self.run = None


@contextlib.contextmanager
def bounded_exit() -> Iterator[None]:
    """Start W&B within the block. At exit the interpreter would wait for W&B's process without end: now _EXIT seconds.

    Exit functions run in reverse order, so this one, registered after W&B's own, runs before it.
    """
    try:
        yield
    finally:
        atexit.unregister(_end_service)
        atexit.register(_end_service)


def _end_service() -> None:
    """End W&B's process, by an alarm if it takes long. A thread cannot be started at exit (Python 3.12)."""
    import wandb

    def end(*_: object) -> None:
        for child in psutil.Process().children():
            if child.name().startswith("wandb-core"):
                child.kill()

    signal.signal(signal.SIGALRM, end)
    signal.alarm(_EXIT)
    with contextlib.suppress(Exception, SystemExit):
        wandb.teardown()
    signal.alarm(0)
