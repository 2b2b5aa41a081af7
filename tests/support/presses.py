"""kvpress where it is installed, and what its presses need."""

import importlib.util

from kvbench.evaluation.settings import build_settings
from kvbench.integrations.kvpress.method import KVPress
from tests.support.config import method_configs
from tests.support.needs import needs

HERE = importlib.util.find_spec("kvpress") is not None


guest = needs("kvpress", "" if HERE else "kvpress is not installed; make test-integrations runs this")


def method(*overrides: str) -> KVPress:
    (setting, *_) = build_settings(method_configs("kvpress", overrides=overrides), 0.5, None)
    return setting.method


# What presses need besides a ratio.
PARTS = {
    "DMSPress": {"press": "KnormPress", "threshold": -0.5},
    "ComposedPress": {"presses": [{"KnormPress": {"compression_ratio": 0.5}}, "ThinKPress"]},
    "PerLayerCompressionPress": {"press": "KnormPress", "compression_ratios": [0.5, 0.2, 0.8]},
    "SimLayerKVPress": {"lazy_threshold": 0.1, "n_recent": 64},
    "ThinKPress": {"key_channel_compression_ratio": 0.5},
}
WRAPPERS = ("AdaKV", "Block", "ChunkKV", "Chunk", "CriticalAdaKV", "CriticalKV", "EntropyGatedChunkKV", "KeyRerotation")
PARTS |= {f"{name}Press": {"press": "KnormPress"} for name in (*WRAPPERS, "Merging")}
