"""The lines that references consist of, each with its translation into Triton.

A reference updates one running value `x`, one line at a time. So does its kernel: it is the line-by-line translation of
the reference, inserted into a frame of `frames.py`. Training tasks cover every line; held-out tasks combine them in new
ways. `mask`, `n` and `BLOCK` are names that the frames define. Each reduction masks its own operand, so that lines can
follow each other in any order.
"""

from __future__ import annotations

__all__ = ["MISTAKES", "SAME_SHAPE", "TRANSLATIONS"]

_MASKED_SUM = "tl.sum(tl.where(mask, {}, 0.0), axis=0)"

_ELEMENTWISE = {
    "x = -x": "x = -x",
    "x = x * x": "x = x * x",
    "x = x * 2.0": "x = x * 2.0",
    "x = x * 0.5": "x = x * 0.5",
    "x = x + 1.0": "x = x + 1.0",
    "x = x - 1.0": "x = x - 1.0",
    "x = torch.relu(x)": "x = tl.maximum(x, 0.0)",
    "x = torch.exp(x)": "x = tl.exp(x)",
    "x = torch.sigmoid(x)": "x = tl.sigmoid(x)",
    "x = torch.abs(x)": "x = tl.abs(x)",
    "x = torch.sin(x)": "x = tl.sin(x)",
    "x = torch.clamp(x, -1.0, 1.0)": "x = tl.minimum(tl.maximum(x, -1.0), 1.0)",
    "x = torch.where(x > 0.0, x, x * 0.1)": "x = tl.where(x > 0.0, x, x * 0.1)",
    "x = x * torch.sigmoid(x)": "x = x * tl.sigmoid(x)",
    "x = x / (1.0 + torch.abs(x))": "x = x / (1.0 + tl.abs(x))",
    "x = x + z": "x = x + z",
    "x = x - z": "x = x - z",
    "x = x * z": "x = x * z",
    "x = torch.maximum(x, z)": "x = tl.maximum(x, z)",
    "x = x * self.scale": "x = x * scale",
    "x = x + self.bias": "x = x + bias",
    "x = x * self.factor": "x = x * factor",
}

_ROWS = {
    "x = x - x.mean(dim=1, keepdim=True)": f"x = x - {_MASKED_SUM.format('x')} / n",
    "x = x - x.amax(dim=1, keepdim=True)": "x = x - tl.max(tl.where(mask, x, -1e9), axis=0)",
    "x = x - x.amin(dim=1, keepdim=True)": "x = x - tl.min(tl.where(mask, x, 1e9), axis=0)",
    "x = x / x.sum(dim=1, keepdim=True)": f"x = x / {_MASKED_SUM.format('x')}",
    "x = x / x.amax(dim=1, keepdim=True)": "x = x / tl.max(tl.where(mask, x, -1e9), axis=0)",
    "x = x / torch.abs(x).sum(dim=1, keepdim=True)": f"x = x / {_MASKED_SUM.format('tl.abs(x)')}",
    "x = x / torch.sqrt((x * x).mean(dim=1, keepdim=True))": f"x = x / tl.sqrt({_MASKED_SUM.format('x * x')} / n)",
    "x = torch.cumsum(x, dim=1)": "x = tl.cumsum(x, axis=0)",
}

SAME_SHAPE = _ELEMENTWISE | _ROWS
"""Lines that keep the shape of the running value."""

TRANSLATIONS = SAME_SHAPE | {
    "x = x.sum()": f"x = {_MASKED_SUM.format('x')}",
    "x = x.sum(dim=1)": f"x = {_MASKED_SUM.format('x')}",
    "x = x.mean(dim=1)": f"x = {_MASKED_SUM.format('x')} / n",
    "x = x.amax(dim=1)": "x = tl.max(tl.where(mask, x, -1e9), axis=0)",
    "x = x.argmax(dim=1)": "x = tl.argmax(tl.where(mask, x, -1e9), axis=0)",
    "x = x > z": "x = x > z",
    "x = x @ z": 'x = tl.dot(x, z, input_precision="ieee")',
    "x = x @ z.T": 'x = tl.dot(x, z, input_precision="ieee")',
    "x = self.linear(x)": 'x = tl.dot(x, z, input_precision="ieee") + bias',
}
"""Line of a reference → line of its kernel."""

MISTAKES = {
    "x = -x": "x = 1.0 - x",
    "x = x * x": "x = x + x",
    "x = x * 2.0": "x = x + 2.0",
    "x = x * 0.5": "x = x / 0.5",
    "x = x + 1.0": "x = x - 1.0",
    "x = x - 1.0": "x = x + 1.0",
    "x = tl.maximum(x, 0.0)": "x = tl.minimum(x, 0.0)",
    "x = tl.exp(x)": "x = 1.0 + x",
    "x = tl.sigmoid(x)": "x = tl.sigmoid(-x)",
    "x = tl.abs(x)": "x = tl.maximum(x, 0.0)",
    "x = tl.sin(x)": "x = tl.cos(x)",
    "x = tl.minimum(tl.maximum(x, -1.0), 1.0)": "x = tl.maximum(tl.minimum(x, -1.0), 1.0)",
    "x = tl.where(x > 0.0, x, x * 0.1)": "x = tl.where(x > 0.0, x * 0.1, x)",
    "x = x * tl.sigmoid(x)": "x = tl.sigmoid(x)",
    "x = x / (1.0 + tl.abs(x))": "x = x / (1.0 + x)",
    "x = x + z": "x = x - z",
    "x = x - z": "x = z - x",
    "x = x * z": "x = x + z",
    "x = tl.maximum(x, z)": "x = tl.minimum(x, z)",
    "x = x > z": "x = x < z",
    "x = x * scale": "x = x + scale",
    "x = x + bias": "x = x - bias",
    "x = x * factor": "x = x + factor",
    "x = tl.cumsum(x, axis=0)": "x = tl.sum(x, axis=0)",
    'x = tl.dot(x, z, input_precision="ieee")': "x = x * z",
    'x = tl.dot(x, z, input_precision="ieee") + bias': 'x = tl.dot(x, z, input_precision="ieee")',
}
"""Line of a kernel → the same line with a wrong operator, a swapped argument or a missing term."""
