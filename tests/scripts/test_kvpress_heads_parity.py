"""scripts/compare/kvpress_heads_parity.py: kvbench's side reads what the side with kvpress leaves."""

import json

import torch
from safetensors.torch import save_file

from scripts.compare import kvpress_heads_parity as parity

N, LAYERS, HEADS, KV_HEADS = 80, 6, 6, 2  # of presses.cases' llama-gqa


def test_sets_of_every_setting_are_counted_in_every_layer_and_head(tmp_path, capsys):
    case = {"model": "llama-gqa", "folder": None, "ids": [3] * N}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    (tmp_path / "versions.json").write_text("{}")
    generator = torch.Generator().manual_seed(0)
    for dtype in parity.DTYPES:
        tensors = {}
        for layer in range(LAYERS):
            for name, heads in (("queries", HEADS), ("keys", KV_HEADS), ("values", KV_HEADS)):
                states = torch.randn(heads, N, 16, generator=generator)
                tensors[f"{layer}/{name}"] = states.to(parity.DTYPES[dtype])
            for which in parity.PRESSES:
                tensors[f"{layer}/{which}/0.1"] = torch.arange(N).expand(KV_HEADS, N) >= N - 72
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()}, tmp_path / f"heads-0-{dtype}.safetensors"
        )
    parity.compare(tmp_path)
    table = capsys.readouterr().out
    for which in parity.PRESSES:
        for dtype in parity.DTYPES:
            sets = LAYERS * KV_HEADS
            assert f"| {which} | tiny | {dtype} | {sets} | 0 | " in table and f" | {sets * 72} |" in table
