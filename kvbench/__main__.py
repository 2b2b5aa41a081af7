"""The command line: `kvbench KEY=VALUE …` runs an evaluation, `kvbench COMMAND …` works on its records.

Torch and transformers take seconds to import, so modules that need them are imported inside functions: `--help`,
`--version`, `status` and a misspelt name do not wait for them.
"""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from omegaconf import DictConfig

from kvbench.configuration.conf import check_typed_overrides, more_configuration
from kvbench.errors import UserError, unknown
from kvbench.runner.arguments import check_slips, is_word, typed, without_config_dir
from kvbench.runner.commands import commands
from kvbench.runner.completion import complete_commands, with_config_dir_of_line
from kvbench.runner.failures import one_line_errors
from kvbench.runner.help import help_text
from kvbench.runner.help_sections import section_named
from kvbench.runner.starting_note import starting
from kvbench.runner.torchrun import group_of_environment, one_speaks
from kvbench.utils.console import out, print_line
from kvbench.utils.model_override import expanded
from kvbench.utils.release import __version__
from kvbench.utils.signals import stoppable

GROUP = group_of_environment()


def main() -> None:
    """Entry point of `kvbench` and `python -m kvbench`."""
    try:
        dispatch(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was being reported
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what follows is the interpreter's exit: no traceback from there


def dispatch(arguments: Sequence[str]) -> None:
    """Print help or the version, run a command, or run an evaluation.

    `--config-dir FOLDER` may be anywhere, and applies to each of them.
    """
    with one_speaks(GROUP), one_line_errors():
        folder, rest = without_config_dir(with_config_dir_of_line(arguments))
        with more_configuration(folder):
            check_slips(rest)
            if rest and is_word(rest[0]):
                raise SystemExit(run_command(*rest))
            options, overrides, for_hydra = typed(rest)
            if options.help:
                words = [argument for argument in overrides if is_word(argument)]
                out.print(help_text(*words), markup=True, highlight=False, soft_wrap=True)
            elif options.version:
                print_line(f"kvbench {__version__}")
            elif complete_commands(rest):
                check_single_values(overrides)
                overrides = expanded(overrides)
                # `query=SHELL` and `install=SHELL` of a shell are no overrides
                check([] if options.shell_completion else overrides, options.multirun, folder)
                from kvbench.runner.jobs import ask_hydra, run_one, run_sweep  # bring pydantic

                if for_hydra:
                    ask_hydra([*for_hydra, *(["--config-dir", str(folder)] if folder else [])], overrides)
                else:
                    (run_sweep if options.multirun else run_one)(overrides, _run)


def check(overrides: Sequence[str], several: bool, folder: Path | None) -> None:
    """Check the command line and the files of --config-dir FOLDER before Hydra composes them."""
    from kvbench.runner.prerequisites import check_typed  # brings pydantic, which --help does without

    check_typed_overrides(overrides, several)
    check_typed(overrides)
    if folder is not None:
        from kvbench.configuration.hydra_nodes import check_what_hydra_runs

        check_what_hydra_runs(overrides, folder)


def run_command(name: str, *arguments: str) -> int:
    """Run one of `commands()` and return its exit code. Raises UserError for an unknown name or wrong arguments, and
    under torchrun.
    """
    known = commands()
    if name not in known and Path(name).is_dir():
        raise UserError(f"{name} is a folder: kvbench report {shlex.quote(name)} writes a page of its runs")
    if name not in known:
        section = section_named(name)
        lists = f"kvbench --help {section} lists them." if section else "kvbench --help lists them." * (name == "help")
        raise unknown("command", name, known, lists)
    if GROUP is not None:  # its processes would all do the same, and write the same files
        raise UserError(f"kvbench {name} works in one process, and torchrun started {GROUP.world}: leave torchrun out")
    return known[name].run(arguments)


def _run(cfg: DictConfig) -> None:
    from kvbench.configuration import resolved
    from kvbench.runner.prerequisites import check_machine

    chosen = resolved(cfg)
    sys.path.append(os.getcwd())  # where a user's own methods, benchmarks and metrics are found
    with stoppable(), nullcontext() if GROUP else starting(chosen):
        check_machine(chosen)

        from kvbench.runner.run import run

        if GROUP is None:
            run(chosen)
        else:
            with GROUP.job():
                shard = GROUP.shard_of(chosen)
                with starting(shard):
                    run(shard, GROUP)


def check_single_values(arguments: Sequence[str]) -> None:
    """Refuse a list of models or benchmarks, which Hydra would merge into one node."""
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("model", "benchmark") and value.startswith("["):
            names = ",".join(name.strip() for name in value.strip("[]").split(","))
            raise UserError(f"{argument}: a run has one {key}; -m {key}={names} makes a run for each")


if __name__ == "__main__":
    main()
