"""Whole runs of `kvbench`, on the device and on the CPU: the records of a tiny model whose tokens are bytes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import kvbench
from scripts.benchmarks.gpu import models

METHODS = ["full", "snapkv", "adakv", "kivi", "spindle", "minicache", "h2o", "pyramidkv", "simlayerkv", "turboquant_4"]
ASKED = {"benchmark": {"niah": {"lengths": [900], "depths": [0, 50, 100], "max_new_tokens": 16}}, "ratio": 0.3}
COMPARED = ("tokens", "kept_positions", "kept_per_head", "stored_bytes")
END = "<end>"


def compared(device: str) -> dict:
    """How many records are equal in what they chose, kept and stored, but for answers that rounding could change."""
    with TemporaryDirectory() as folder:
        path = saved(Path(folder) / "tiny")
        frames = [records_on(each, path, Path(folder) / str(at)) for at, each in enumerate((device, "cpu"))]
    both = frames[0].merge(frames[1], on=["setting", "sample"], suffixes=("", "_cpu"))
    equal = [all(equal_values(row[key], row[f"{key}_cpu"]) for key in COMPARED) for _, row in both.iterrows()]
    close = both["close_call"].notna() | both["close_cuts"].fillna(0).astype(bool)
    return {
        "records": len(frames[0]),
        "pairs": len(both),
        "equal": sum(equal),
        "different": sorted(
            {
                row["setting"]
                for (_, row), ok, near in zip(both.iterrows(), equal, close, strict=True)
                if not (ok or near)
            }
        ),
        "engines": sorted(frames[0]["decode_engine"].unique()),
    }


def records_on(device: str, path: Path, out: Path) -> pd.DataFrame:
    keys = {"model.device": device, "model.dtype": "float32", "output_dir": str(out)}
    return kvbench.run(method=METHODS, model=path, **ASKED, **keys)


def equal_values(a: object, b: object) -> bool:
    return bool(a == b) or (a != a and b != b)  # two nan are equal


def saved(folder: Path) -> Path:
    """A random model with a token for each byte, as the hub lays it out."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
    shape = models.TRIAL | {"vocab_size": len(fast), "max_position_embeddings": 4096}
    model = models.sharpened(models.llama3_8b("cpu", torch.float32, **shape))
    model.generation_config.eos_token_id = model.config.eos_token_id = fast.eos_token_id
    model.save_pretrained(folder)
    return folder
