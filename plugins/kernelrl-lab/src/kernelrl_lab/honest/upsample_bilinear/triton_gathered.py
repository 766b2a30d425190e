"""Four gathers for each pixel of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def upsample(x_ptr, y_ptr, H, W, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 4 * H * W
    row = tl.maximum((at // (2 * W) + 0.5) * 0.5 - 0.5, 0.0)
    column = tl.maximum((at % (2 * W) + 0.5) * 0.5 - 0.5, 0.0)
    top, left = row.to(tl.int32), column.to(tl.int32)
    below, right = tl.minimum(top + 1, H - 1), tl.minimum(left + 1, W - 1)
    v, u = row - top, column - left
    base = x_ptr + plane * H * W
    a = tl.load(base + top * W + left, mask=mask) * (1.0 - u) + tl.load(base + top * W + right, mask=mask) * u
    b = tl.load(base + below * W + left, mask=mask) * (1.0 - u) + tl.load(base + below * W + right, mask=mask) * u
    tl.store(y_ptr + plane * 4 * H * W + at, a * (1.0 - v) + b * v, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        batch, c, h, w = x.shape
        y = x.new_empty(batch, c, 2 * h, 2 * w)
        upsample[(batch * c, triton.cdiv(4 * h * w, 256))](x, y, h, w, BLOCK=256)
        return y
