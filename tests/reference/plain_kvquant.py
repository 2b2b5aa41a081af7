"""KVQuant read number by number: levels by Lloyd's iteration over the numbers, vectors one after the other."""

import torch
from torch import Tensor


def lloyd(numbers: Tensor, count: int, rounds: int = 50) -> Tensor:
    """Levels of numbers [n], float64 [count], from levels that part them into equal shares."""
    ordered = numbers.double().sort().values
    levels = ordered[((torch.arange(count) + 0.5) / count * len(ordered)).long()]
    for _ in range(rounds):
        nearest = (ordered[:, None] - levels).abs().argmin(dim=1)
        levels = torch.stack(
            [ordered[nearest == i].mean() if (nearest == i).any() else levels[i] for i in range(count)]
        )
    return levels


def restored(vector: Tensor, levels: Tensor, scale: Tensor, offset: Tensor, side: int) -> Tensor:
    """One vector [channels] with `side` numbers stored apart at each end; scale and offset by channel, or one."""
    quotients = (vector - offset) / scale
    nearest = (quotients[:, None] - levels).abs().argmin(dim=1)
    out = levels[nearest] * scale + offset
    order = quotients.argsort()
    for channel in [*order[:side].tolist(), *order[len(order) - side :].tolist()]:
        out[channel] = vector[channel]
    return out
