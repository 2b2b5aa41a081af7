"""Bytes of tensors that a count includes without keeping the tensors alive; freed tensors still count."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class _Storage(NamedTuple):
    address: int
    nbytes: int
    reference: StorageWeakRef


class Beside:
    """The storages behind some tensors, each once and in full."""

    def __init__(self, tensors: Iterable[Tensor] = ()):
        behind = {storage.data_ptr(): storage for storage in (tensor.untyped_storage() for tensor in tensors)}
        self._storages = [_Storage(ptr, storage.nbytes(), StorageWeakRef(storage)) for ptr, storage in behind.items()]

    def __len__(self) -> int:
        return len(self._storages)

    def bytes_without(self, tensors: Iterable[Tensor]) -> int:
        """Bytes of the storages that hold none of `tensors`. A freed storage holds no tensor."""
        addresses = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        return sum(held.nbytes for held in self._storages if held.reference.expired() or held.address not in addresses)
