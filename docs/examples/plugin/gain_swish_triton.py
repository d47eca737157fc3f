"""The kernel of gain_swish.py for Triton, which reads the source of a file."""

import triton
import triton.language as tl


# Numbers that differ from launch to launch are not specialized: Triton would compile for those of the warm-up.
@triton.jit(do_not_specialize=["count", "n", "sharpness"])
def swish(x, gain, y, count, n, sharpness, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    v = tl.load(x + i, mask=mask)
    g = tl.load(gain + i % n, mask=mask)
    tl.store(y + i, g * v / (1.0 + tl.exp(-sharpness * v)), mask=mask)
