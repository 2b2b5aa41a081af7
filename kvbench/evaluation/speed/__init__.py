"""Speed: each setting measured alone, in rounds that change the order; medians and counted bytes."""

from kvbench.evaluation.speed.rounds import evaluate

__all__ = ["evaluate"]
