"""`kvbench lm_eval`: the command line of lm-evaluation-harness with kvbench's models, `--model kvbench`.

No entry point of another package reaches the registry in which lm-eval 0.4.13 keeps its models, so its command runs
from here.
"""

import sys
from collections.abc import Sequence

from kvbench.integrations.lm_eval import register
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line

PARSER = Parser(
    "lm_eval",
    "Evaluate one setting of kvbench on tasks of lm-evaluation-harness. All other options are lm-eval's.",
    "lm-eval's own help:",
    usage="""kvbench lm_eval --model kvbench --tasks TASKS ...
                       --model_args method=NAME[,ratio=R][,KEY=VALUE ...]""",
    add_help=False,
)
PARSER.add_argument(
    "--model_args",
    help="kvbench's keys: method, ratio or budget, model or pretrained, and any other key of its configuration",
)


def main(arguments: Sequence[str]) -> None:
    if {"--help", "-h"} & set(arguments):
        print_line(PARSER.format_help())
    register()
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["kvbench lm_eval", *arguments]
    cli_evaluate()
