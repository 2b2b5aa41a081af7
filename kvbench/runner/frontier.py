"""`kvbench frontier`: the fewest bytes at which each method keeps a share of FullKV's quality."""

import os
import sys
from collections.abc import Mapping, Sequence
from math import nextafter

from kvbench.configuration import Configuration, configured
from kvbench.configuration.mistakes import check_own_keys
from kvbench.errors import UserError
from kvbench.runner.next_commands import next_commands, print_next
from kvbench.runner.prerequisites import check_machine, check_measure, check_typed
from kvbench.utils.arguments import Parser, number
from kvbench.utils.signals import stoppable

ABOUT = (
    "Find the fewest bytes at which each method keeps a share of FullKV's quality. The command chooses the ratios "
    "itself, so it takes neither ratio= nor budget=. All settings of a pass share each prompt's prefill. All records "
    "are in one run's folder, with frontier.md, .csv, .png and .pdf; the same command continues there."
)


def main(arguments: Sequence[str]) -> None:
    parser = Parser("frontier", ABOUT)
    parser.overrides("as for kvbench: method=[snapkv,h2o] model=llama3-8b benchmark=jsonl benchmark.path=FILE ...")
    share = number(nextafter(0, 1), 1, "must be a number above 0 and at most 1")
    parser.setting("quality=0.95", "share of FullKV's mean score to keep", share, 0.95)
    parser.setting(
        "measure=NAME",
        "the score that decides: one of the benchmark's, or top1 (agreement with FullKV's next token, without expected "
        "answers); default: the benchmark's first",
    )
    parser.setting("passes=3", "how often ratios are refined after the first pass over 1/2, 1/4, ... 1/64", passes, 3)
    parser.setting(
        "speed=FOLDER", "a run of benchmark=speed with the same model and settings, to draw scores against tokens/s too"
    )
    options = parser.parse(arguments)
    overrides = options.overrides
    sys.path.append(os.getcwd())  # where a user's own metrics and methods are found
    check_typed(overrides)
    check_own_keys(overrides, parser.settings)
    cfg = configured(overrides)
    if cfg.ratio is not None or cfg.budget is not None:
        raise UserError("kvbench frontier chooses the ratios: leave out ratio= and budget=")
    if cfg.engine:
        raise UserError("kvbench frontier compares methods at equal bytes: leave out engine=")
    check_machine(cfg)
    check_measure(options.measure, cfg.benchmark)
    names = methods(cfg)
    if "full" not in cfg.method:
        cfg = cfg.changed(method={**cfg.method, "full": configured(["method=[full]"]).method["full"]})

    # after the checks: this imports torch
    from kvbench.runner.frontier_search import report, search
    from kvbench.runner.frontier_speed import speed_records

    speed = speed_records(options.speed, cfg.model.name) if options.speed is not None else None
    with stoppable():
        folder, scored = search(cfg, names, options.quality, options.measure, options.passes)
    report(folder, scored, options.quality, cfg.model, speed)
    print_next(next_commands(cfg, folder, ["report"], sys.argv))


def passes(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"passes={text} must be an integer of at least 0")
    return int(text)


def methods(cfg: Configuration) -> list[str]:
    """The methods to search with."""
    if cfg.method.get("_target_"):
        raise UserError("kvbench frontier takes methods by name: give yours a YAML file (docs/adding-a-method.md)")
    names = [name for name, node in cfg.method.items() if isinstance(node, Mapping) and name != "full"]
    if not names:
        raise UserError("kvbench frontier compares methods with FullKV: method=NAME or 'method=[NAME,NAME]'")
    return names
