"""Vectors as components along their principal axes, with bits per component, in one DEFLATE stream."""

import zlib
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.coded.positions import KeyPositions
from kvbench.cache.coded.sequence import BlockwiseSequence
from kvbench.ops.bit_allocation import allocate

ELEMENT = 16  # bits of an axis's numbers in the allocation of bits, also in a float32 model


class PrincipalAxes(NamedTuple):
    """Axes of vectors, in descending order of their variances."""

    variances: Tensor  # float64 [channels], on the host
    axes: Tensor  # float32 columns [channels, channels]


class TransformSequence(BlockwiseSequence):
    """The rows of a prompt as codes, one vector per token for all heads. The first, the last and later rows stay raw.

    A coded vector is mean + Σ (low_i + step_i · code_i) · axis_i, over the axes that have bits. The codes, one byte
    each and axis by axis, are a DEFLATE stream (RFC 1951), which every read inflates. The host makes and reads the
    stream: one wait for the device.
    """

    def __init__(self, rows: Tensor, bits: float, sinks: int, recent: int, positions: KeyPositions | None):
        """rows [heads, len, head_dim]; bits: per number, axes included, before the stream is deflated; positions: of
        keys, which are coded before RoPE; None for values."""
        self.dtype, (self.heads, n, self.width), self.positions = rows.dtype, rows.shape, positions
        self.coded = max(n - sinks - recent, 0)
        first = min(sinks, n) if self.coded else 0
        self.first = rows[:, :first].clone()
        self.last = Growing(rows[:, first + self.coded :].clone())
        self.tokens = slice(first, first + self.coded)
        middle = rows[:, self.tokens].float()
        x = middle if positions is None else positions.undo(middle, first)
        self.encode(x.transpose(0, 1).flatten(1), bits)

    def encode(self, x: Tensor, bits: float) -> None:
        """Set the coded vectors to x, float32 [t, heads · head_dim]."""
        self.mean = x.mean(dim=0).to(self.dtype) if len(x) else x.new_zeros(x.shape[1], dtype=self.dtype)
        centred = x - self.mean.float()
        variances, axes = principal_axes(centred)
        side = ELEMENT * (x.shape[1] + 2) + 8  # an axis, its step and its lowest number, and its bits
        chosen = allocate(variances, max(len(x), 1), side, bits * x.numel())
        coded = chosen > 0
        self.bits = chosen[coded].to(torch.uint8).to(x.device)
        self.axes = axes[:, coded.to(axes.device)].T.to(self.dtype).contiguous()  # [axes, channels]
        components = centred @ self.axes.float().T
        low, high = components.aminmax(dim=0) if len(x) else (components.new_empty(0), components.new_empty(0))
        most = 2.0 ** self.bits.float() - 1
        step = ((high - low) / most).to(self.dtype).clamp_(min=torch.finfo(self.dtype).tiny)
        low = low.to(self.dtype)
        self.normal = torch.stack([low, step])
        codes = ((components - low.float()) / step.float()).round().clamp_(min=0).minimum(most)
        deflate = zlib.compressobj(level=6, wbits=-15)
        stream = deflate.compress(codes.T.to(torch.uint8).contiguous().cpu().numpy().tobytes()) + deflate.flush()
        self.stream = torch.frombuffer(bytearray(stream), dtype=torch.uint8).to(x.device)

    def codes(self) -> Tensor:
        """The inflated codes, uint8 [t, axes]."""
        inflated = zlib.decompress(self.stream.cpu().numpy().tobytes(), wbits=-15)
        if not inflated:
            return self.stream.new_empty(self.coded, 0)
        return torch.frombuffer(bytearray(inflated), dtype=torch.uint8).to(self.stream.device).view(-1, self.coded).T

    @property
    def length(self) -> int:
        return int(self.first.shape[1] + self.coded + self.last.length)

    def append(self, rows: Tensor) -> None:
        self.last.append(rows)

    def blocks(self, count: int) -> list[slice]:
        """A single block: the stream is inflated as a whole."""
        return [slice(0, count)]

    def decoded(self, tokens: slice) -> Tensor:
        low, step = self.normal.float()
        vectors = torch.addmm(self.mean.float(), low + step * self.codes().float(), self.axes.float())
        rows = vectors.unflatten(1, (self.heads, -1)).transpose(0, 1)
        if self.positions is not None:
            rows = self.positions.redo(rows, self.tokens.start)
        return torch.cat([self.first.float(), rows, self.last.view.float()], dim=1)[:, tokens]

    def tensors(self) -> list[Tensor]:
        stored = [self.first, self.last.buffer, self.mean, self.bits, self.axes, self.normal, self.stream]
        return stored if self.positions is None else [*stored, self.positions.stored]

    @property
    def filled_bytes(self) -> int:
        stored = filled(self.first, self.last, self.mean, self.bits, self.axes, self.normal, self.stream)
        return stored + (0 if self.positions is None else self.positions.stored.nbytes)


def principal_axes(centred: Tensor) -> PrincipalAxes:
    """Variances, float64 [channels] on the host in descending order, and axes as columns [channels, channels], of
    vectors float32 [t, channels]. The largest entry of an axis is positive."""
    x = centred.double()
    variances, axes = torch.linalg.eigh(x.mT @ x / max(len(x), 1))
    axes = axes.flip(1)
    largest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))
    return PrincipalAxes(variances.flip(0).cpu(), (axes * largest.sign()).float())
