"""Number formats in which the channels of a row share a scale block by block: those of ggml, of OCP's microscaling
specification, and NVFP4."""

from kvbench.ops.formats.base import BlockFormat
from kvbench.ops.formats.ggml import GGML
from kvbench.ops.formats.microscaling import MICROSCALING

__all__ = ["GGML", "MICROSCALING", "BlockFormat"]
