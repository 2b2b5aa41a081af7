"""Biases and values with which fewer keys give reference queries the attention of all keys, by least squares."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from kvbench.errors import UserError

# A weight is exp(bias), and a bias is stored beside keys in float32 or 16 bits.
Bias = Annotated[float, Field(ge=-80, le=80)]
ITERATIONS = 3  # of the power method, from a vector of ones: masses are positive


def check_bounds(least_bias: float, most_bias: float) -> None:
    """Raise UserError for bounds of a bias that no bias is between."""
    if least_bias > most_bias:
        raise UserError(f"least_bias={least_bias} is above most_bias={most_bias}")


def masses(logits: Tensor) -> Tensor:
    """exp(logit - largest logit of the query), [r, len], of logits [r, len]."""
    return (logits - logits.amax(dim=1, keepdim=True)).exp_()


def least_squares(a: Tensor, b: Tensor, ridge: float) -> Tensor:
    """The x that minimises ‖ax - b‖² + λ‖x‖², float64 [k, m], for a [r, k] and b [r, m].

    λ is `ridge` times the largest squared norm of a's columns, or of a's rows if a has fewer rows than columns.
    """
    a, b = a.double(), b.double()
    if len(a) < a.shape[1]:
        return a.mT @ torch.cholesky_solve(b, _factor(a @ a.mT, ridge))
    return torch.cholesky_solve(a.mT @ b, _factor(a.mT @ a, ridge))


def _factor(gram: Tensor, ridge: float) -> Tensor:
    """The Cholesky factor of gram + λ·I; gram is overwritten."""
    diagonal = gram.diagonal()
    diagonal += ridge * diagonal.amax()
    return cholesky(gram)


def cholesky(gram: Tensor) -> Tensor:
    """The Cholesky factor; NaN where there is none, as of a model that overflows: an answer over it is not finite, and
    its record is refused, while the run goes on."""
    factor, failed = torch.linalg.cholesky_ex(gram)
    return factor.masked_fill_((failed > 0)[..., None, None], float("nan"))


def mass_weights(kept: Tensor, total: Tensor, least: float, most: float, steps: int, ridge: float) -> Tensor:
    """Weights in [least, most] by which the masses kept [r, k] add up to about total [r]; float64 [k].

    They are the least-squares solution, clamped to the bounds, then improved by `steps` steps of projected gradient
    descent. The step size is one over the largest eigenvalue.
    """
    kept, total = kept.double(), total.double()
    weights = least_squares(kept, total[:, None], ridge)[:, 0].clamp_(least, most)
    if steps:
        direction = kept.new_ones(kept.shape[1])
        for _ in range(ITERATIONS):
            direction = kept.mT @ (kept @ direction)
            direction /= direction.norm()
        step = 1 / (kept @ direction).square().sum()
        for _ in range(steps):
            weights = (weights - step * (kept.mT @ (kept @ weights - total))).clamp_(least, most)
    return weights


def matched_values(logits: Tensor, bias: Tensor, outputs: Tensor, ridge: float) -> Tensor:
    """Values whose attention by softmax(logits + bias) is about `outputs`; float64 [k, head_dim].

    logits [r, k] of the queries and the kept keys; bias [k]; outputs [r, head_dim]: attention over all keys.
    """
    return least_squares((logits.double() + bias).softmax(dim=1), outputs, ridge)


def matching_pursuit(
    mass: Tensor, first: Tensor, count: int, step: int, least: float, most: float, ridge: float
) -> Tensor:
    """Indices of `count` columns of the masses `mass` [r, len], in the order of orthogonal matching pursuit.

    Each round adds the `step` columns with the largest products with the residual. The residual is the sum of all
    columns minus the chosen columns times their weights, which are fitted by least squares and clamped to
    [least, most]. The pursuit begins with the columns `first`. λ as in `least_squares`, from all columns.
    """
    total, chosen = mass.sum(dim=1).double(), first
    damping = ridge * mass.square().sum(dim=0).amax().double()
    picked = total.new_empty(len(mass), count)  # the chosen columns
    factor = total.new_zeros(count, count)  # the Cholesky factor of the chosen columns' products, row by row
    done, residual = 0, total
    while True:
        if (end := len(chosen)) > done:
            picked[:, done:end] = mass[:, chosen[done:]]
            _extend(factor, picked[:, :end], done, damping)
            done, columns = end, picked[:, :end]
            weights = torch.cholesky_solve((columns.mT @ total)[:, None], factor[:done, :done])[:, 0].clamp_(
                least, most
            )
            residual = total - columns @ weights
        if done >= count:
            return chosen
        products = mass.mT @ residual.to(mass)
        products[chosen] = float("-inf")
        best = products.sort(descending=True, stable=True).indices
        chosen = torch.cat([chosen, best[: min(step, count - done)]])


def _extend(factor: Tensor, picked: Tensor, done: int, damping: Tensor) -> None:
    """Rows `done`, … of the factor, for the columns of picked [r, k] after the first `done`."""
    old, new = picked[:, :done], picked[:, done:]
    end = picked.shape[1]
    across = torch.linalg.solve_triangular(factor[:done, :done], old.mT @ new, upper=False)
    rest = new.mT @ new - across.mT @ across
    rest.diagonal().add_(damping)
    factor[done:end, :done], factor[done:end, done:end] = across.mT, cholesky(rest)
