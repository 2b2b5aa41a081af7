"""Runs of speed on a tiny model, and records of speed."""

from dataclasses import replace

import pandas as pd

from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.cache.reserve_ratio import Kept
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import Footprint, Measurement
from kvbench.models import ModelSpec
from kvbench.runner import run as main
from tests.support.config import method
from tests.support.runs import compose

TINY = [
    "benchmark=speed",
    "model=llama3-8b-random",
    "model.random.vocab_size=49152",
    "model.random.hidden_size=32",
    "model.random.intermediate_size=48",
    "model.random.num_hidden_layers=2",
    "model.random.num_attention_heads=4",
    "model.random.num_key_value_heads=2",
    "model.random.head_dim=32",
    "method=[full,snapkv,kivi]",
    "ratio=0.4",
    "benchmark.lengths=[96,128]",
    "benchmark.batches=[1,3]",
    "benchmark.new_tokens=6",
    "benchmark.repeats=2",
]


def run(tmp_path, *more):
    return main.run(compose(*TINY, f"output_dir={tmp_path}", *more))


def setting(name: str, budget: int | None = None) -> Setting:
    chosen = method(name)
    return Setting(name, chosen, name, budget=budget if chosen.takes_budget else None)


def turn(decode: float, prefill: float = 2.0) -> Measurement:
    kept = Kept.tokens(10, 10, 10, 2)
    footprint, figures = Footprint(100, 100, 100, 120, 110), DecodeBytes(100).figures(120, 110, 100, 10)
    return Measurement(
        prefill, 0.5, None, decode, 5, ((1, 2),), (kept,), footprint, "stream", figures, "eager", 0, None
    )


def spec(**random) -> ModelSpec:
    model = compose(*TINY).model
    return replace(model, random=model.random | random)


def frame_of(*rows: dict) -> pd.DataFrame:
    """Records as `record` makes them, as far as tables read them."""
    base = dict(
        ratio=None, budget=128, new_tokens=512, batch=1, fits=True, sequences=1, decode_steps=10, r=0.5, r_bytes=0.5,
        prefill_seconds=1.0, compress_seconds=0.1, allocation_seconds=1e-5, latency_seconds=20.0, decode_seconds=1.0,
        prefilled_bytes=53_000_000, peak_cache_bytes=60_000_000, peak_device_bytes=None, largest_batch=None, length=512,
        spread_seconds={"decode": {"min": 0.5, "max": 2.0}},
    )  # fmt: skip
    return pd.DataFrame([base | {"setting": row["method"], "decode_tokens_per_s": 10.0} | row for row in rows])
