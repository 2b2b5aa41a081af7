"""`kvbench check my_method.MyMethod`: checks a method against the rules that all methods of kvbench follow."""

import os
import sys
import traceback
from collections.abc import Sequence

from rich.text import Text

from kvbench.configuration import configured
from kvbench.configuration.conf import choices
from kvbench.errors import UserError, unknown
from kvbench.utils.arguments import Parser, word
from kvbench.utils.console import err, out, print_line
from kvbench.utils.own_code import described
from kvbench.utils.text import count

MORE = """examples:
  kvbench check my_method.MyMethod
  kvbench check my_method.MyMethod +method.granularity=kv_head
  kvbench check snapkv method.snapkv.scoring.window=16"""


def main(arguments: Sequence[str]) -> int:
    parser = Parser(
        "check",
        "Check a method against the rules of docs/adding-a-method.md, with a tiny random model. No file is read or "
        "written. The exit code is 1 if a rule is broken. A method that quantises or merges what it keeps never equals "
        'FullKV: its class says so (never_full = "quantised"), and the first rule is left out.',
        MORE,
    )
    parser.add_argument(
        "method",
        metavar="METHOD",
        type=word,
        help="a name of conf/method, or a class of your own as module.Class, which may be in the working directory",
    )
    parser.overrides("parameters, as for a run")
    options = parser.parse(arguments)
    sys.path.append(os.getcwd())  # where my_method.MyMethod is found
    cfg = configured([*_chosen(options.method), *options.overrides])

    from kvbench.evaluation.settings import build_settings  # after the checks: this imports torch
    from kvbench.runner.method_rules import TOKENS, Trial, exceptions, rules_of

    setting = build_settings(cfg.method, 0.5, None)[-1]
    trial = Trial(setting)
    print_line(f"{setting.name} on a random model of 4 layers, 6 query heads over 2 KV heads, {TOKENS} tokens")
    for words, reason in exceptions(setting.method).items():
        out.print(Text.assemble(("except ", "yellow"), words, f": {reason}"), soft_wrap=True)
    broken = 0
    explained: dict[str, str] = {}  # explanation -> the first rule for which it was printed
    for words, rule in rules_of(trial).items():
        try:
            rule(trial)
        except Exception as error:
            broken += 1
            cause = explanation(error)
            shown = f"the same as for {explained[cause]!r}" if cause in explained else cause
            explained.setdefault(cause, words)
            out.print(Text.assemble(("broken ", "bold red"), words, f": {shown}"), soft_wrap=True)
            if os.environ.get("HYDRA_FULL_ERROR", "0") != "0":
                err.print("".join(traceback.format_exception(error)), highlight=False, soft_wrap=True)
        else:
            out.print(Text.assemble(("holds  ", "green"), words), soft_wrap=True)
    print_line(f"{count(broken, 'rule')} broken" if broken else "every rule holds")
    return 1 if broken else 0


def _chosen(name: str) -> list[str]:
    """The overrides that choose a method by its name or its class."""
    if "." in name:
        return ["method=[]", f"method._target_={name}"]
    if name not in choices("method"):
        raise unknown("method", name, choices("method"))
    return [f"method={name}"]


def explanation(error: Exception) -> str:
    """A broken rule's message, or kvbench's own; any other error with the line that raised it."""
    from kvbench.evaluation.cache_checks import RuleBroken

    if isinstance(error, RuleBroken | UserError):
        return str(error)
    return described(error, traceback.extract_tb(error.__traceback__)[-1])
