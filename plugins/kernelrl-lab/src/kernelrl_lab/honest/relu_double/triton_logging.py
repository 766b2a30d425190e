"""A module logger and a time for the log."""

import logging
import os
import time

import torch
import triton
import triton.language as tl

logger = logging.getLogger(__name__)
VERBOSE = os.environ.get("KERNEL_VERBOSE") == "1"


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    relu_double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        begin = time.perf_counter()
        y = launch(x)
        if VERBOSE:
            logger.info("launched in %.6f s", time.perf_counter() - begin)
        return y
