"""Number formats in which the channels of a block share a scale: ggml's formats, OCP's microscaling formats, NVFP4."""

from kvbench.ops.formats.base import BlockFormat
from kvbench.ops.formats.ggml import GGML
from kvbench.ops.formats.microscaling import MICROSCALING

__all__ = ["GGML", "MICROSCALING", "BlockFormat"]
