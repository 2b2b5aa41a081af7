"""MiniCache: the directions of two adjacent layers' keys and values merged into one."""

import math
from collections.abc import Callable
from collections.abc import Sequence as Listing
from dataclasses import field
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.sequence import Sequence, SequenceLayer
from kvbench.errors import UserError
from kvbench.methods.kivi.storage import Kivi
from kvbench.methods.minicache.merged_rows import merged_rows
from kvbench.methods.selection import Selection, gather, top_indices
from kvbench.methods.storage.base import KeptLayer, Storage, check_same_tokens, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.ops.bits import pack_bits
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, checked

EPS = 1e-6  # sine of an angle, or length of a mixture, below which slerp's direction is undefined


class SharedDirections:
    """One unit vector per merged token for both layers of a pair, and which tokens were not merged.

    `directions` holds the merged tokens [heads, n - k, head_dim] in order; `bits` [heads, ceil(n / 8)] has a
    bit set for each of the k tokens per head that both layers kept as they were.
    """

    def __init__(self, directions: Sequence, bits: Tensor, n: int) -> None:
        self.directions, self.bits, self.n = directions, bits, n

    def restore(self, magnitudes: Tensor, retained: Tensor) -> Tensor:
        """One layer's rows [heads, n, head_dim] from its magnitudes [heads, n - k] and its k unmerged rows."""
        device = retained.device  # the upper layer's device may differ from the device of the shared tensors
        return merged_rows(self.directions.read().to(device), magnitudes, retained, self.bits.to(device))

    def tensors(self) -> list[Tensor]:
        return [*self.directions.tensors(), self.bits]

    @property
    def filled_bytes(self) -> int:
        return self.directions.filled_bytes + self.bits.nbytes


class MergedSequence(Sequence):
    """One layer's keys or values: |x| times the shared direction, its unmerged tokens, and new ones in `tail`."""

    def __init__(
        self, shared: SharedDirections, owner: bool, magnitudes: Tensor, retained: Sequence, tail: Sequence
    ) -> None:
        """owner: whether this layer, and not the other layer of the pair, lists and counts the shared tensors."""
        self.shared, self.owner = shared, owner
        self.magnitudes, self.retained, self.tail = magnitudes, retained, tail

    def append(self, rows: Tensor) -> None:
        self.tail.append(rows)

    def read(self) -> Tensor:
        prompt = self.shared.restore(self.magnitudes, self.retained.read())
        tail = self.tail.read()
        return torch.cat([prompt, tail], dim=1) if tail.shape[1] else prompt

    def tensors(self) -> list[Tensor]:
        unshared = [self.magnitudes, *self.retained.tensors(), *self.tail.tensors()]
        return self.shared.tensors() + unshared if self.owner else unshared

    @property
    def filled_bytes(self) -> int:
        return self._unshared_bytes + (self.shared.filled_bytes if self.owner else 0)

    @property
    def read_bytes(self) -> int:
        return self._unshared_bytes + self.shared.filled_bytes  # both layers read the shared tensors

    @property
    def _unshared_bytes(self) -> int:
        return self.magnitudes.nbytes + self.retained.filled_bytes + self.tail.filled_bytes


class Parts(NamedTuple):
    """The tensors of one layer of a pair that the other layer does not share."""

    magnitudes: Tensor
    retained: Sequence
    tail: Sequence


class MergedRows(NamedTuple):
    """The keys or the values of two layers."""

    pair: list[MergedSequence]
    share: float  # formula 15's r3


@checked
class MiniCache(Storage):
    """MiniCache (Liu et al. 2024, arXiv 2405.14366): pairs of layers from the middle of the model up share directions.

    A token's keys x, y in layers 2i and 2i + 1 are merged to one direction, on the great circle from x to y at `t`, and
    the two lengths |x| and |y|; its values likewise. Tokens whose directions differ the most are retained: they stay
    unmerged in both layers, chosen per head and separately for keys and values. Decoded tokens are never merged. Keys
    are merged after RoPE, which rotates both keys by the same angle.

    t           position between the lower layer's direction (0) and the upper layer's direction (1).
    start       the first layer that may be merged; null: the middle, num_layers // 2. A layer without a partner is not
                merged.
    retention   share of the tokens to retain, rounded up; 0.05 is KVCache-Factory's. With rule="simlayerkv" it is not
                read: as in SimLayerKV's baselines, 1024 tokens are retained of more than 1024, and a tenth (rounded
                down) of fewer.
    criterion   which directions differ the most. angle: the largest angles (KVCache-Factory). abs_cosine: the smallest
                |cos|, for which opposite vectors are alike (SimLayerKV).
    storage     how directions, retained and new tokens and unmerged layers are held: Dense or Kivi. With Kivi all
                retained tokens are quantised; the last directions stay raw, as the last tokens do in other layers.

    r counts as in the paper, (d + 2) / (2d) + ρ per merged layer, where retained tokens have a direction, too. Here
    they have no direction, so r_bytes is about ρ/2 below r in these layers.
    """

    never_full = "merged"

    joint: ClassVar[bool] = True
    t: Fraction = 0.6
    start: NonNegative | None = None
    rule: Literal["fraction", "simlayerkv"] = "fraction"
    retention: Fraction = 0.05
    criterion: Literal["angle", "abs_cosine"] = "angle"
    storage: Storage = field(default_factory=Dense)

    def __post_init__(self) -> None:
        if not isinstance(self.storage, Dense | Kivi):
            raise UserError(f"MiniCache cannot put merged layers into {type(self.storage).__name__}: use Dense or Kivi")
        refuse_union(self.storage, "MiniCache")
        if getattr(self.storage, "layers_file", None) is not None:
            raise UserError("layers_file gives each layer its own bits, but MiniCache stores two layers together")

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        raise UserError("MiniCache merges layers in pairs: it cannot store one layer at a time")

    def store_all(self, layers: Listing[LayerState], selections: Listing[Selection]) -> list[LayerCache]:
        lower = self._lower(len(layers))
        if self.start and not lower:
            raise UserError(f"start={self.start} leaves no two of {len(layers)} layers to merge")
        caches: list[LayerCache] = []
        for index, layer in enumerate(layers):
            if index in lower:
                check_same_tokens(index, selections[index : index + 2], "MiniCache merges each token with")
                caches += self.merge(layers[index : index + 2], selections[index : index + 2])
            elif index - 1 not in lower:
                caches.append(self.storage.store(layer, selections[index]))
        return caches

    def most_share(self, tokens: int) -> float:
        return 1.5  # r counts a direction for tokens that are not merged, too, as in the paper

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """Half of the inner storage's share in merged layers, because two layers share one set of directions."""
        if layer is not None and layer.index - layer.index % 2 not in self._lower(layer.num_layers):
            return self.storage.least_share(element_bytes, layer)
        return self.storage.least_share(element_bytes) / 2

    def _lower(self, num_layers: int) -> range:
        """The layers that are merged with the next."""
        start = num_layers // 2 if self.start is None else self.start
        return range(start + start % 2, num_layers - 1, 2)

    def retained(self, n: int) -> int:
        """How many of n tokens stay unmerged per head."""
        if self.rule == "simlayerkv":
            return 1024 if n > 1024 else n // 10
        return math.ceil(self.retention * n - 1e-9)  # 1e-9: float noise on whole numbers

    def merge(self, pair: Listing[LayerState], selections: Listing[Selection]) -> list[LayerCache]:
        """The caches of two layers that keep the same tokens; the layers may be on different devices."""
        kept_keys = [selection.of(layer.keys) for layer, selection in zip(pair, selections, strict=True)]
        kept_values = [selection.of(layer.values) for layer, selection in zip(pair, selections, strict=True)]
        storage = self.storage
        assert isinstance(storage, Dense | Kivi), "others are refused"
        keys = self.merge_rows(kept_keys, storage.key_sequence)
        values = self.merge_rows(kept_values, storage.value_sequence)
        selection = selections[0]
        heads, n = selection.heads(pair[0]), pair[0].n
        # one direction for two vectors; r3 is its size with magnitudes and unmerged tokens
        kept = selection.kept(pair[0], r2=0.5, r3=pair[0].mean_share(keys.share, values.share))
        return [SequenceLayer(k, v, heads, n, kept) for k, v in zip(keys.pair, values.pair, strict=True)]

    def merge_rows(self, rows: Listing[Tensor], sequence: Callable[..., Sequence]) -> MergedRows:
        """Two layers' keys or values [heads, n, head_dim] as merged sequences."""
        heads, n, head_dim = rows[0].shape
        together = [x.to(rows[0].device) for x in rows]  # shared tensors are on the lower layer's device
        lengths = [x.float().norm(dim=-1) for x in together]  # [heads, n]
        x, y = (F.normalize(x.float(), dim=-1) for x in together)
        cosine = (x * y).sum(dim=-1).clamp_(-1, 1)
        cosine.masked_fill_((lengths[0] == 0) | (lengths[1] == 0), 1)  # merging with a zero loses nothing
        unlike = -cosine.abs() if self.criterion == "abs_cosine" else -cosine
        indices = top_indices(unlike, self.retained(n))  # [heads, k]
        unmerged = torch.zeros_like(cosine, dtype=torch.bool).scatter_(1, indices, True)
        merged = unmerged.sort(dim=1, stable=True).indices[:, : n - indices.shape[1]]  # the other tokens, in order

        def parts(member: int) -> Parts:
            layer_rows = rows[member]
            magnitudes = lengths[member].gather(1, merged)
            if layer_rows.dtype.itemsize < 4:  # the length of a float16 vector may pass float16
                magnitudes.clamp_(max=torch.finfo(layer_rows.dtype).max)
            magnitudes = magnitudes.to(layer_rows.device, layer_rows.dtype)
            tail = sequence(layer_rows.new_empty(heads, 0, head_dim))
            return Parts(magnitudes, sequence(gather(layer_rows, indices.to(layer_rows.device)), recent=False), tail)

        directions = gather(slerp(x, y, cosine, self.t), merged)
        shared = SharedDirections(sequence(directions.to(rows[0].dtype)), pack_bits(unmerged), n)
        pair = [MergedSequence(shared, member == 0, *parts(member)) for member in (0, 1)]
        retained = 2 * indices.shape[1] / n * pair[0].retained.share
        return MergedRows(pair, shared.directions.share + 2 / head_dim + retained)


def slerp(x: Tensor, y: Tensor, cosine: Tensor, t: float) -> Tensor:
    """The unit vector at `t` on the great circle from x to y, float32 unit vectors [..., d] with their cosine [...].

    For equal or opposite vectors, which determine no circle, it lies on the line between them; if that is zero, it is
    y, or x if y is zero.
    """
    angle = cosine.arccos()[..., None]
    sine = angle.sin()
    straight = sine <= EPS
    sine = sine.masked_fill(straight, 1)
    from_x = torch.where(straight, 1 - t, ((1 - t) * angle).sin() / sine)
    from_y = torch.where(straight, t, (t * angle).sin() / sine)
    mixed = from_x * x + from_y * y
    norm = mixed.norm(dim=-1, keepdim=True)
    either = torch.where(y.any(dim=-1, keepdim=True), y, x)
    return torch.where(norm > EPS, mixed / norm, either)
