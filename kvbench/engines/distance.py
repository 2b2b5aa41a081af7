"""How far two engines' predictions along one answer differ, from their likeliest tokens alone."""

import math
from collections.abc import Sequence

from kvbench.engines.base import Top


def compare(baseline: Sequence[Top], other: Sequence[Top]) -> dict[str, float] | None:
    """Distances at the places of one answer; None without places, or if no place has a token that both name.

    top1         share of places at which both have the same likeliest token.
    agreed       share of places before the first difference.
    kl_at_least  mean over places of `at_least`, in nats.
    """
    pairs = list(zip(baseline, other, strict=True))
    if not pairs or not any(p.keys() & q.keys() for p, q in pairs):
        return None
    matches = [likeliest(p) == likeliest(q) for p, q in pairs]
    agreed = matches.index(False) if False in matches else len(matches)
    kl = math.fsum(at_least(p, q) for p, q in pairs) / len(pairs)
    return {"top1": sum(matches) / len(matches), "agreed": agreed / len(matches), "kl_at_least": kl}


def likeliest(top: Top) -> str | None:
    return max(top, key=top.__getitem__, default=None)


def at_least(p: Top, q: Top) -> float:
    """A lower bound of KL(p ‖ q) from the tokens that both name; all other tokens count as one token.

    Merging outcomes never increases the divergence (the log-sum inequality), so the merged divergence is a lower bound.
    There is no upper bound: one of p's likeliest tokens may have any small probability in q.
    """
    both = p.keys() & q.keys()
    terms = [math.exp(p[token]) * (p[token] - q[token]) for token in both]
    rest_p, rest_q = (max(1 - math.fsum(math.exp(top[token]) for token in both), 0.0) for top in (p, q))
    if rest_p > 0 and rest_q > 0:
        terms.append(rest_p * math.log(rest_p / rest_q))
    return max(math.fsum(terms), 0.0)
