import torch
import triton
import triton.language as tl

@triton.jit
def look_up(x_ptr, table_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    places = tl.load(x_ptr + offsets, mask=mask, other=0).to(tl.int32)
    tl.store(y_ptr + offsets, tl.load(table_ptr + places) * 2.0, mask=mask)


def looked_up(x, table):
    y = torch.empty(x.shape)
    look_up[(triton.cdiv(x.numel(), 128),)](x, table, y, x.numel(), BLOCK=128)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x, table):
        return looked_up(x, table)
