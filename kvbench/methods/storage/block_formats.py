"""Storage in block formats of inference engines' caches: ggml's formats, MX and NVFP4."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from kvbench.cache.coded.block_format import BlockSequence
from kvbench.errors import UserError
from kvbench.methods.facts import Launches
from kvbench.methods.storage.base import KeptLayer, coded_share
from kvbench.methods.storage.coded import CodedStorage
from kvbench.ops.formats import GGML, MICROSCALING, BlockFormat
from kvbench.ops.rotation import Rotation
from kvbench.utils.checked import NonNegative, checked


class BlockFormats(CodedStorage):
    """Keys in one block format and values in another, for the tokens that a method keeps.

    k, v      names of `formats`; the docstring of each format describes its rounding.
    rotation  rotation of each key and value before rounding; attention rotates queries and outputs, not stored rows.
    seed      seed of the rotation.

    Attention multiplies float32 queries by decoded keys.
    """

    launches = Launches(decode=147)  # for the blocks of a new token; a single kernel reads the blocks of all tokens

    formats: ClassVar[Mapping[str, BlockFormat]]
    k: str
    v: str
    rotation: Rotation | None
    seed: int

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        keys, values = (self.formats[name].bits_per_element for name in (self.k, self.v))
        return coded_share(keys, values, element_bytes, layer)

    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> BlockSequence:
        form = self.formats[getattr(self, which)]
        if rows.shape[-1] % form.block:
            raise UserError(
                f"{which}={form.name} shares a scale among {form.block} channels: this model's head dimension of "
                f"{rows.shape[-1]} is not a multiple of {form.block}"
            )
        return BlockSequence(rows, form, self.rotation, self.seed)


GgmlName = Literal["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
MicroscalingName = Literal["nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2"]


@checked
class Ggml(BlockFormats):
    """The formats of llama.cpp's cache (`-ctk`, `-ctv`), with the bytes that ggml stores.

    llama.cpp also rounds queries, to q8_0, before it multiplies them by quantised keys; here queries are not rounded.
    If llama.cpp rotates, its rotation is `plain_hadamard`. Source: ggml-quants.c of ggml; there is no paper.
    """

    formats = GGML

    k: GgmlName = "q8_0"
    v: GgmlName = "q8_0"
    rotation: Rotation | None = None
    seed: NonNegative = 0


@checked
class Microscaling(BlockFormats):
    """The MX formats of OCP's specification, and NVFP4 with a float32 scale for each head's keys and values.

    NVFP4's float32 scale comes from the prompt's largest value: larger values of decoded tokens are clipped. Engines
    calibrate one scale for a whole layer or model. Sources: OCP Microscaling Formats (MX) Specification 1.0; NVIDIA's
    description of NVFP4; there is no paper.
    """

    formats = MICROSCALING

    k: MicroscalingName = "mxfp8_e4m3"
    v: MicroscalingName = "mxfp8_e4m3"
    rotation: Rotation | None = None
    seed: NonNegative = 0
