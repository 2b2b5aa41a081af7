"""A matrix product that Triton's interpreter computes, too."""

import triton
import triton.language as tl

# The interpreter holds bfloat16 numbers as 16-bit integers and would multiply these integers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def dot(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """a [m, k] times b [k, n], float32 [m, n]; float32 factors are not rounded to TF32."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")
