"""Methods of kvbench in transformers' `generate`: a cache that compresses the prompt, and a block that inserts it."""

from kvbench.integrations.generate.block import Compression, compress
from kvbench.integrations.generate.cache import CompressedCache
from kvbench.integrations.generate.setting import setting_of

__all__ = ["CompressedCache", "Compression", "compress", "setting_of"]
