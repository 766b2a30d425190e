import torch
import triton
import triton.language as tl


@triton.jit
def rows_equal(x_ptr, y_ptr, z_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = row * COLUMNS + tl.arange(0, BLOCK)
    differs = (tl.load(x_ptr + places) != tl.load(y_ptr + places)).to(tl.int32)
    tl.store(z_ptr + row, tl.max(differs, axis=0) == 0)


def launch(x, y):
    z = torch.empty(x.shape[0], dtype=torch.bool, device=x.device)
    rows_equal[(x.shape[0],)](x, y, z, COLUMNS=x.shape[1], BLOCK=128)
    return z


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return launch(x, y)
