"""`kvbench lm_eval`: the command line of lm-evaluation-harness with kvbench's models, `--model kvbench`.

lm-eval 0.4.13 keeps its models in a registry of its own that no entry point of another package reaches, so its
command runs from here.
"""

import sys
from collections.abc import Sequence

from kvbench.integrations.lm_eval import register


def main(arguments: Sequence[str]) -> None:
    register()
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["kvbench lm_eval", *arguments]
    cli_evaluate()
