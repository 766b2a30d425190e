"""Triton kernels of our own, all different: the input of `throughput.py --backend triton`.

python benchmarks/corpora/triton_maps.py OUTPUT.jsonl [--count 96]
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []
"""

_KERNEL = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def map_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, {expression}, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        map_kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block}, num_warps={warps})
        return y
"""

_MAPS = (
    ("torch.relu(x) * 2.0", "tl.maximum(x, 0.0) * 2.0"),
    ("x * x + 1.0", "x * x + 1.0"),
    ("torch.sigmoid(x)", "tl.sigmoid(x)"),
    ("x.abs().sqrt()", "tl.sqrt(tl.abs(x))"),
    ("torch.clamp(x, -1.0, 1.0)", "tl.minimum(tl.maximum(x, -1.0), 1.0)"),
    ("torch.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, x, 0.1 * x)"),
    ("x * torch.sigmoid(x)", "x * tl.sigmoid(x)"),
    ("torch.cos(x) + x", "tl.cos(x) + x"),
    ("torch.exp(-x.abs())", "tl.exp(-tl.abs(x))"),
    ("x / (1.0 + x.abs())", "x / (1.0 + tl.abs(x))"),
    ("torch.relu(x) - 0.5 * x", "tl.maximum(x, 0.0) - 0.5 * x"),
    ("torch.exp(-x * x)", "tl.exp(-x * x)"),
)
_BLOCKS = (256, 512, 1024, 2048, 4096)
_WARPS = (4, 8)


def kernels() -> Iterator[dict[str, str]]:
    for warps, block, (reference, expression) in itertools.product(_WARPS, _BLOCKS, _MAPS):
        yield {
            "name": f"{expression}/{block}/{warps}",
            "task": _TASK.format(reference=reference),
            "kernel": _KERNEL.format(expression=expression, block=block, warps=warps),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=96)
    given = parser.parse_args()
    given.output.write_text("".join(json.dumps(row) + "\n" for row in list(kernels())[: given.count]))


if __name__ == "__main__":
    main()
