"""A small kernel that is launched once in the zygote, so that forks inherit the interpreter's lazy imports."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x_ptr, y_ptr, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


_x = torch.zeros(8)
_copy[(1,)](_x, torch.empty_like(_x), 8, block=8)
