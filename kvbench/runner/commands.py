"""The commands other than the run itself: `kvbench NAME …`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from kvbench.errors import UserError
from kvbench.utils.own_code import own_line
from kvbench.utils.plugins import declared, plugin_of
from kvbench.utils.text import in_one_line


@dataclass(frozen=True)
class Command:
    """A command other than the run itself: the module whose `main(arguments)` it calls, and one line about it."""

    module: str
    about: str
    overrides: bool = False  # whether it takes keys of the configuration, as a run does

    def run(self, arguments: Sequence[str]) -> int:
        """Call `main` and return the exit code. Raises UserError for a plug-in's module that has no such function."""
        plugin = plugin_of(self.module)
        try:
            main = import_module(self.module).main
        except (ImportError, AttributeError) as error:
            if plugin is None or own_line(error):  # raised in the plug-in's code, which its line names
                raise
            raise UserError(
                f"the plug-in {plugin}: {self.module} needs a function main(arguments): {in_one_line(error)}"
            ) from error
        code: object = main(list(arguments))
        if code is None:
            return 0
        if not isinstance(code, int):
            raise UserError(
                f"the plug-in {plugin}: main of {self.module} returned {code!r}: an exit code, or None for 0, is needed"
            )
        return code


COMMANDS = {
    "table": Command(
        "kvbench.report.tables.command",
        "make an experiment's table from its records, beside the published values",
        True,
    ),
    "figure": Command(
        "kvbench.report.figures.command",
        "draw an experiment's figures from its records, beside the published ones",
        True,
    ),
    "report": Command("kvbench.report.page.command", "write one HTML page of runs, with every sample"),
    "compare": Command(
        "kvbench.runner.compare", "compare settings of runs with a baseline on the same samples, for CI too"
    ),
    "served": Command(
        "kvbench.runner.served", "put quality beside latency, throughput and capacity of servers, in one table"
    ),
    "frontier": Command(
        "kvbench.runner.frontier", "find the fewest bytes at which each method keeps 95 % of FullKV's quality", True
    ),
    "records": Command("kvbench.records.command", "list records, check that they are consistent, and export them"),
    "verify": Command(
        "kvbench.runner.verify.command",
        "recompute what somebody's folder of records claims; --rerun K makes K samples again",
    ),
    "pack": Command(
        "kvbench.records.pack_command", "write a run as a small folder to hand in, without paths and names"
    ),
    "unpack": Command("kvbench.records.unpack", "write a pack as a run's folder again, where its command goes on"),
    "leaderboard": Command(
        "kvbench.runner.leaderboard.command", "rank methods at equal bytes over packs and runs of any number of people"
    ),
    "status": Command("kvbench.runner.status", "show the progress of runs and their shards"),
    "score": Command("kvbench.runner.score", "score LongBench predictions again with the official metrics"),
    "calibrate": Command(
        "kvbench.runner.calibrate", "write a file of head scores, which HeadKV and DuoAttention read", True
    ),
    "check": Command(
        "kvbench.runner.check", "check your own method against the rules of docs/adding-a-method.md", True
    ),
    "ruler": Command("kvbench.runner.ruler_files", "write RULER's samples as files", True),
    "lm_eval": Command("kvbench.integrations.lm_eval.command", "run lm-evaluation-harness with kvbench's models"),
}


def commands() -> dict[str, Command]:
    """COMMANDS and the commands of plug-ins."""
    return COMMANDS | {
        name: Command(entry["module"], entry["about"]) for name, entry in declared("command", COMMANDS).items()
    }
