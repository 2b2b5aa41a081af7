"""Try every causal-LM class of the installed transformers, and write what becomes of each as a table."""

from collections import Counter
from pathlib import Path

import transformers
from rich.progress import track
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvbench.utils.console import err
from kvbench.utils.files import write_atomically
from scripts.frame import script_parser
from scripts.results.tiny_models.outcome import NEW, N, Outcome, outcome_of

KINDS = {
    "equal": f"FullKV answers the {NEW} tokens of `generate` after a prompt of {N}, from the same logits",
    "refused": "one line when the model is loaded",
    "not built": "no tiny configuration of it could be made",
    "different": "other tokens or logits",
    "traceback": "an error of no user",
}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("types", nargs="*", metavar="MODEL_TYPE", help="default: all")
    parser.add_argument("--out", type=Path, required=True, help="the table, as Markdown")
    args = parser.parse_args()
    types = args.types or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    outcomes = [outcome_of(name) for name in track(types, "model classes", console=err)]
    write_atomically(args.out, page(outcomes))
    print(dict(Counter(outcome.kind for outcome in outcomes)))


def page(outcomes: list[Outcome]) -> str:
    """The outcomes by kind."""
    counts = Counter(outcome.kind for outcome in outcomes)
    lines = [
        f"# Every causal-LM class of transformers {transformers.__version__}",
        "",
        "Tiny random models in float32; released checkpoints can differ from a class's default configuration.",
        "",
        "| outcome | classes | |",
        "| :-- | --: | :-- |",
        *(f"| {kind} | {counts[kind]} | {what} |" for kind, what in KINDS.items()),
        "",
        "Equal: " + ", ".join(outcome.model_type for outcome in outcomes if outcome.kind == "equal") + ".",
        "",
        "| class | outcome | why |",
        "| :-- | :-- | :-- |",
        *(f"| {name} | {kind} | {why.replace('|', '/')} |" for name, kind, why in outcomes if kind != "equal"),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
