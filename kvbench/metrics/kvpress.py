"""Scores that kvpress computes differently from the benchmarks' authors (NVIDIA/kvpress at 8bb29b9, evaluation/)."""

from kvbench.metrics.backends import rouge_1


def needle_rouge1(needle: str, prediction: str) -> float:
    """`f` of rouge-1 between needle and answer in the package `rouge`: unstemmed words, each counted once.

    An answer without a word scores 0; kvpress raises there.
    """
    return rouge_1(needle.strip(), prediction.strip())
