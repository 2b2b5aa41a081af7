"""`python -m kvbench.lm_eval`: lm-evaluation-harness with kvbench's models: `--model kvbench`.

lm-eval 0.4.13 finds models in a registry of its own, which no other package's entry points reach; so its command
runs from here. In Python, `kvbench.lm_eval.register()` comes before `lm_eval.simple_evaluate(model="kvbench", …)`.
"""

from kvbench.cli import mistakes_in_one_line
from kvbench.errors import UserError

INSTALL = "pip install -c constraints.txt -c constraints-lm-eval.txt 'kvbench[lm-eval]'"


def register() -> None:
    """Add the model `kvbench` to lm-eval's registry. UserError where lm-eval cannot be imported."""
    try:
        import lm_eval.evaluator  # what it lacks is missing here, not in the middle of a run
        import lm_eval.models  # noqa: F401  (its own models first: they enter only an empty registry)

        import kvbench.guests.lm_eval_model  # noqa: F401  (registers itself)
    except ImportError as error:
        raise UserError(f"lm-eval with all that it needs is not installed ({error}): {INSTALL}") from error


def main() -> None:
    """Entry point of `kvbench-lm-eval` and `python -m kvbench.lm_eval`: lm-eval's own command line."""
    with mistakes_in_one_line():
        register()
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()


if __name__ == "__main__":
    main()
