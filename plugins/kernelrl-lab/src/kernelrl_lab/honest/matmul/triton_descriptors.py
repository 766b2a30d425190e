"""Tensor descriptors that the kernel makes."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for inner in range(0, K, BLOCK):
        total = tl.dot(a.load([row, inner]), b.load([inner, column]), total, input_precision="ieee")
    c.store([row, column], total)


def workspace(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        if a.is_cuda:
            triton.set_allocator(workspace)
        (m, k), n = a.shape, b.shape[1]
        c = a.new_empty(m, n)
        product[(m // 32, n // 32)](a, b, c, m, n, k, BLOCK=32)
        return c
