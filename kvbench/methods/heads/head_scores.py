"""Calibration files: a number for each head of one model, made once and offline."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Literal, get_args

import torch

from kvbench.errors import UserError
from kvbench.prefill import LayerState
from kvbench.utils.regular_files import open_regular, read_text
from kvbench.utils.text import in_one_line
from kvbench.utils.versions import Versioned, parts

Heads = Literal["query_heads", "kv_heads"]
KIND = "head scores"
MOST_HEADS = 2**16  # of a model; the largest have some thousands of KV heads in all layers
UNPICKLED = (UnpicklingError, RuntimeError, EOFError)  # errors of torch.load for a file that is no tensor


@dataclass(frozen=True)
class HeadScores:
    """The contents of a calibration file.

    over     the kind of heads that have a number each.
    scores   [layers][heads], the lowest layer first.
    model    kvbench's name of the model that they were made for; "" if the file does not say.
    about    what the numbers are and where they come from; "" if the file does not say.
    """

    path: str
    over: Heads
    scores: tuple[tuple[float, ...], ...]
    model: str = ""
    about: str = ""

    def of_heads(self, heads: int, layer: LayerState) -> list[list[float]]:
        """The numbers [layers][heads] of `heads` KV heads or query heads; a KV head gets the mean of its query heads.

        Raises UserError if the file was made for a model of another shape.
        """
        in_file = layer.num_attention_heads if self.over == "query_heads" else layer.num_key_value_heads
        shape, expected = (len(self.scores), len(self.scores[0])), (layer.num_layers, in_file)
        if shape != expected:
            raise UserError(
                f"{self.path} has numbers for {shape[0]} layers of {shape[1]} {self.over.replace('_', ' ')}, but this "
                f"model has {expected[0]} of {expected[1]}: it was made for another model"
            )
        if heads > in_file:
            raise UserError(f"{self.path} has scores of KV heads: granularity=query_head needs scores of query heads")
        group = in_file // heads
        return [[sum(row[i : i + group]) / group for i in range(0, in_file, group)] for row in self.scores]


def read_head_scores(path: str) -> HeadScores:
    """The numbers of a file in one of four formats; raises UserError for any other.

    - a file of `kvbench calibrate`
    - HeadKV's released JSON: a list of numbers for each "layer-head", whose mean is the head's number
    - DuoAttention's released pattern: the gates of KV heads, full_attention_heads.tsv with config.json beside it
    - KVzip's released tensor [layers, KV heads], as .pt
    """
    try:
        if path.endswith(".pt"):
            with open_regular(path) as file:
                rows = _rows(torch.load(file, map_location="cpu", weights_only=True))
            return _checked(path, "kv_heads", rows, "", "KVzip's scores of KV heads")
        text = read_text(path)
        if path.endswith(".tsv"):
            config = json.loads(read_text(Path(path).parent / "config.json"))
            rows = [[float(number) for number in line.split("\t")] for line in text.splitlines() if line.strip()]
            return _checked(path, "kv_heads", rows, "", f"DuoAttention's gates of {config['model_name']}")
        data = json.loads(text)
        if data.get("kind") == KIND:
            return _checked(path, data["over"], data["scores"], data["model"], data["about"])
        means = {tuple(map(int, name.split("-"))): sum(x) / len(x) for name, x in data.items()}
        layers, heads = (1 + max(axis) for axis in zip(*means, strict=True))
        rows = [[means[layer, head] for head in range(heads)] for layer in range(layers)]
        return _checked(path, "query_heads", rows, "", "importance of heads in HeadKV's form")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, *UNPICKLED) as error:
        raise UserError(f"{path} is not a readable calibration file: {in_one_line(error)}") from None


def _rows(tensor: object) -> list[list[float]]:
    """The numbers of a tensor [layers, KV heads]; one that repeats a number may have more than memory can hold."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2 or tensor.numel() > MOST_HEADS:
        raise ValueError(f"it is no tensor [layers, KV heads] of at most {MOST_HEADS:,} numbers")
    return tensor.float().tolist()


def _checked(path: str, over: Heads, rows: list[list[float]], model: str, about: str) -> HeadScores:
    if over not in get_args(Heads) or not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        raise ValueError("it needs `over` query_heads or kv_heads, and `scores`, as many numbers for every layer")
    if not all(isinstance(x, int | float) and math.isfinite(x) for row in rows for x in row):
        raise ValueError("a score is not a finite number")
    return HeadScores(path, over, tuple(tuple(map(float, row)) for row in rows), model, about)


def calibrations(method: Versioned) -> list[HeadScores]:
    """The calibration files that a method and its parts have read."""
    return [value for part in parts(method) for value in vars(part).values() if isinstance(value, HeadScores)]
