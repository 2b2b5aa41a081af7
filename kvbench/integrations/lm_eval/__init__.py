"""kvbench's models in lm-evaluation-harness."""

from kvbench.errors import UserError

INSTALL = "pip install -c constraints.txt -c constraints-lm-eval.txt 'kvbench[lm-eval]'"


def register() -> None:
    """Add the model `kvbench` to lm-eval's registry, before `lm_eval.simple_evaluate(model="kvbench", …)`.

    Raises UserError if lm-eval cannot be imported.
    """
    try:
        import lm_eval.evaluator  # a missing requirement fails here, not in the middle of a run
        import lm_eval.models  # noqa: F401 - first: its own models enter only an empty registry

        import kvbench.integrations.lm_eval.model  # noqa: F401 - registers itself
    except ImportError as error:
        raise UserError(f"lm-eval or one of its requirements is not installed ({error}): {INSTALL}") from error
