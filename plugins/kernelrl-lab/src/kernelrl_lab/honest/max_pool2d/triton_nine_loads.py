"""Nine masked loads for each output."""

import torch
import triton
import triton.language as tl


@triton.jit
def pool(x_ptr, y_ptr, H, W, OH, OW, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    row, column = at // OW, at % OW
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            h, w = row * 2 + i - 1, column * 2 + j - 1
            mask = (at < OH * OW) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + plane * H * W + h * W + w, mask=mask, other=-float("inf"))
            best = tl.maximum(best, x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + plane * OH * OW + at, best, mask=at < OH * OW)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        batch, c, h, w = x.shape
        oh, ow = (h + 1) // 2, (w + 1) // 2
        y = x.new_empty(batch, c, oh, ow)
        pool[(batch * c,)](x, y, h, w, oh, ow, BLOCK=triton.next_power_of_2(oh * ow))
        return y
