"""A product over channels and taps, whose left factor is never stored."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv(x_ptr, w_ptr, b_ptr, y_ptr, C, H, W, OUT: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr):
    image = tl.program_id(0)
    pixels = tl.program_id(1) * BP + tl.arange(0, BP)
    row, column = pixels // W, pixels % W
    outputs = tl.arange(0, OUT)
    total = tl.zeros((BP, OUT), tl.float32)
    for first in range(0, C * 9, BK):
        inner = first + tl.arange(0, BK)
        channel, tap = inner // 9, inner % 9
        h = row[:, None] + (tap // 3)[None, :] - 1
        w = column[:, None] + (tap % 3)[None, :] - 1
        inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (inner < C * 9)[None, :] & (pixels < H * W)[:, None]
        x = tl.load(x_ptr + image * C * H * W + channel[None, :] * H * W + h * W + w, mask=inside, other=0.0)
        taps = tl.load(w_ptr + outputs[None, :] * C * 9 + inner[:, None], mask=(inner < C * 9)[:, None], other=0.0)
        total += tl.dot(x, taps, input_precision="ieee")
    total += tl.load(b_ptr + outputs)[None, :]
    at = y_ptr + image * OUT * H * W + outputs[None, :] * H * W + pixels[:, None]
    tl.store(at, total, mask=(pixels < H * W)[:, None])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        batch, c, h, w = x.shape
        y = x.new_empty(batch, 16, h, w)
        conv[(batch, triton.cdiv(h * w, 64))](x, self.conv.weight, self.conv.bias, y, c, h, w, OUT=16, BP=64, BK=32)
        return y
