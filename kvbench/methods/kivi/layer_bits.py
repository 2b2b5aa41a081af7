"""Bits of keys and values by layer, from a file as KVTuner (Li et al. 2025, arXiv 2502.04420) publishes them."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from kvbench.errors import UserError
from kvbench.utils.yaml_files import read_yaml

Bits = Literal[2, 4, 8]


class LayerBits(NamedTuple):
    keys: int
    values: int


def read_layer_bits(path: str) -> list[LayerBits]:
    """The bits of each layer, lowest first, from a YAML file `0: {nbits_key: 8, nbits_value: 4}`.

    Raises UserError for a file that cannot be read, layers other than 0, 1, … and bits other than 2, 4 and 8.
    """
    try:
        layers = read_yaml(Path(path))
    except UserError as error:
        raise UserError(f"layers_file={path} cannot be read: {error}") from None
    if not isinstance(layers, dict) or not layers or list(layers) != list(range(len(layers))):
        raise UserError(f"layers_file={path} must be a mapping of the layers 0, 1, … in order")
    bits = []
    for number, layer in layers.items():
        sides: list[Any] = [
            layer.get(f"nbits_{side}") if isinstance(layer, dict) else None for side in ("key", "value")
        ]
        if not all(type(value) is int and value in get_args(Bits) for value in sides):
            raise UserError(f"layers_file={path}: layer {number} needs nbits_key and nbits_value, each 2, 4 or 8")
        bits.append(LayerBits(*sides))
    return bits
