"""KVQuant's simulated quantiser: thresholds of channels, outliers, restored keys and values, and fitted levels.

`scikit-learn`, which fits the released levels, is no dependency of kvbench: install it beside, for this comparison.
"""

import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.cache.coded.positions import KeyPositions
from kvbench.methods.kvquant.fitted_levels import fitted_levels
from kvbench.methods.kvquant.sequence import NonUniformKeys, NonUniformSequence, NonUniformValues, percentiles
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.leverage import UNROTATED
from scripts.compare.parity.tensors import real_layers

CHANNELS, HEAD_DIM, SHARE, SINKS = 4096, 64, 0.01, 1  # at 4,096 channels the released cap of outliers is that of 1 %
LENGTHS = (200, 400)
BITS = (4, 3, 2)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    if find_spec("sklearn") is None:
        raise SystemExit("kvquant fits levels with scikit-learn: pip install scikit-learn")
    module, version = load(root, file), commit(root)
    warnings.filterwarnings("ignore", message="To copy construct from a tensor")

    def row(function: str, unit: str, source: str) -> Agreement:
        return Agreement(project, version, function, "KVQuant", "float32", source, unit)

    for source in ("random", "heavy tails", "SmolLM2-135M"):
        thresholds = row("SimQuant.quantize", "channels' thresholds", source)
        outliers = row("get_outliers, capped", "outliers of keys", source)
        dynamic = row("get_outliers_dynamic", "outliers of values", source)
        keys = row("quant_fn_nuq_recon, per channel", "restored keys", source)
        values = row("quant_fn_nuq_recon, per token", "restored values", source)
        levels = row("SimQuant.quantize", "squared errors of fitted levels", source)
        for n, bits in product(LENGTHS, BITS):
            k, v = rows_of(source, n)  # [tokens, channels]
            example = f"{source}, n={n}, {bits} bits"
            held = NonUniformKeys(heads(k), bits, SHARE, SINKS, KeyPositions(UNROTATED, None, n, n, k.device))
            upper, lower, centroids = calibrated(module, k[SINKS:], bits)
            low, high = percentiles(k[SINKS:], SHARE / 2)
            thresholds.near(torch.stack([low, high]), torch.stack([lower[0], upper[0]]), high - low, example)
            fitted(levels, module, k[SINKS:], (lower, upper), centroids, bits, example)
            low, high = (held.channels[1] - held.channels[0]), (held.channels[1] + held.channels[0])
            mask = module.get_outliers(
                k, channel=0, outlier_threshold_upper=high, outlier_threshold_lower=low, cap_outliers=1
            )
            places = slots(held)
            sets(outliers, places, mask, example)
            theirs = module.quant_fn_nuq_recon(
                k, bits, 0, False, True, mask, high, low, [held.levels], first_few_fp16=SINKS
            )
            keys.near(flat(held), torch.where(places, k, theirs), (high - low) / 2, example, halfway(held, k))
            held = NonUniformValues(heads(v), bits, SHARE, SINKS)
            mask = module.get_outliers_dynamic(v, channel=-1, thresh=1 - SHARE)
            sets(dynamic, slots(held), mask, example)
            theirs = module.quant_fn_nuq_recon(v, bits, -1, True, True, mask, lut=[held.levels], first_few_fp16=SINKS)
            values.near(flat(held), theirs, (v.amax(1) - v.amin(1))[:, None], example, halfway(held, v))
        outliers.note = "slots that the released cap leaves empty hold a number, too, and are not compared"
        levels.note = "a level's error at most 2 % above that of k-means, which starts from random levels"
        yield from (thresholds, outliers, dynamic, keys, values, levels)


@cache
def rows_of(source: str, n: int) -> list[Tensor]:
    """Keys and values of n tokens, float32 [n, CHANNELS]."""
    if source == "SmolLM2-135M":
        layers = [layer for _, layer in real_layers((n,), torch.float32, every=1)]
        return [
            torch.cat([x.transpose(0, 1).flatten(1) for x in each], dim=1)[:, :CHANNELS].float()
            for each in ([layer.keys for layer in layers], [layer.values for layer in layers])
        ]
    made = torch.randn(2, n, CHANNELS, generator=torch.Generator().manual_seed(n))
    return list(made if source == "random" else made**3)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(1, (-1, HEAD_DIM)).transpose(0, 1)


def flat(held: NonUniformSequence) -> Tensor:
    return held.flat(held.decoded(slice(None)))


def slots(held: NonUniformSequence) -> Tensor:
    """Which numbers of each vector are stored apart, bool [tokens, channels]."""
    channels = held.parts[1].view.long()
    return torch.zeros(len(channels), CHANNELS, dtype=torch.bool).scatter_(1, channels, True)


def halfway(held: NonUniformSequence, x: Tensor) -> Tensor:
    """Which numbers of vectors x [tokens, channels] lie half-way between two levels, up to float32's rounding."""
    quotients = held.quotients(x, *held.normal(x))
    edges = (held.levels[1:] + held.levels[:-1]) / 2
    return (quotients[..., None] - edges).abs().amin(dim=-1) < 1e-6


def calibrated(module, k: Tensor, bits: int) -> tuple:
    """Upper and lower thresholds [1, channels], and levels, that the released calibration finds on these tokens."""
    layer = SimpleNamespace(weight=SimpleNamespace(device="cpu", data=torch.zeros(k.shape[1], 1)))
    quantiser = module.SimQuant(layer, bits, perchannel=True, qchannel=0)
    quantiser.out = k
    return quantiser.quantize(include_sparse=True, sparsity_threshold=1 - SHARE, nuq=True, fisher=None)


def fitted(row: Agreement, module, k: Tensor, ends: tuple[Tensor, Tensor], centroids: list, bits: int, example: str):
    """Squared error of numbers between -1 and 1 at the nearest of their levels and of ours."""
    lower, upper = ends
    numbers = (k - (upper + lower) / 2) / ((upper - lower) / 2)
    inside = numbers.abs() <= 1
    ours = fitted_levels(numbers, torch.ones_like(inside), 2**bits)
    theirs = torch.tensor(centroids[0]).flatten().sort().values.float()
    mine, other = (error(numbers[inside], levels) for levels in (ours, theirs))
    row.cases += 1
    row.compared += 1
    gap = mine / other - 1
    row.largest_gap = max(row.largest_gap, gap)
    row.equal += gap <= 0
    row.rounding += 0 < gap <= 0.02
    row.different += gap > 0.02
    if gap > 0.02:
        row.examples.append(f"{example}: {gap:.3f} above")


def error(numbers: Tensor, levels: Tensor) -> float:
    nearest = levels[torch.bucketize(numbers, (levels[1:] + levels[:-1]) / 2)]
    return float((numbers - nearest).double().square().mean())


def sets(row: Agreement, ours: Tensor, theirs: Tensor, example: str) -> None:
    """Every released outlier is one of ours."""
    row.cases += 1
    row.compared += int(theirs.sum())
    row.equal += int((ours & theirs).sum())
    missing = int((theirs & ~ours).sum())
    row.different += missing
    if missing and len(row.examples) < 3:
        row.examples.append(f"{example}: {missing} of {int(theirs.sum())}")
