"""Metrics of one's own, as `benchmark.metric=module.function` names them."""


def shortest(prediction, answers):
    """Length of the prediction over that of the shortest answer, at most 1."""
    return min(len(prediction) / min(map(len, answers)), 1)


def two(prediction, answers):
    """No share."""
    return 2
