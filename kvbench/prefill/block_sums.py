"""Attention inside blocks of a prompt without a mask, from queries that come in pieces of any size."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.block_sums import block_sums


class Blocks(NamedTuple):
    """The attention that is summed: blocks of `size` tokens, after the first `skip` and before the last `leave`.

    filled   whether queries and keys of zeros fill up the last block (see `kvbench.ops.block_sums`).
    """

    size: int
    skip: int = 0
    leave: int = 0
    filled: bool = False


class BlockSums:
    """The sums of a prompt of n tokens; holds the queries of one block that is not yet complete."""

    def __init__(self, blocks: Blocks, n: int):
        self.blocks = blocks
        self.at, self.end = blocks.skip, n - blocks.leave  # the start of the incomplete block, and the end of the last
        self.waiting: Tensor | None = None  # its queries [num_attention_heads, < size, head_dim]
        self.parts: list[Tensor] = []

    def add(self, queries: Tensor, keys: Tensor, start: int) -> None:
        """Queries [num_attention_heads, q, head_dim] at positions start, start + 1, …, and all keys read so far."""
        new = queries[:, max(self.at - start, 0) : max(self.end - start, 0)]
        rows = new if self.waiting is None else torch.cat([self.waiting, new], dim=1)
        length = rows.shape[1]
        complete = length if self.at + length >= self.end else length // self.blocks.size * self.blocks.size
        keys = keys[:, self.at : self.at + complete]
        self.parts.append(block_sums(rows[:, :complete], keys, self.blocks.size, self.blocks.filled))
        self.at += complete
        self.waiting = rows[:, complete:].clone()

    def total(self) -> Tensor:
        """Float32 [num_attention_heads, n - skip - leave]."""
        return torch.cat(self.parts, dim=1)
