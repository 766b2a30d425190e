import torch
import triton
import triton.language as tl


@triton.jit
def dots(a_ptr, b_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    at = row * COLUMNS + tl.arange(0, COLUMNS)
    found = tl.sum(tl.load(a_ptr + at) * tl.load(b_ptr + at), axis=0)
    tl.store(y_ptr + row, found.to(tl.float64))


def launch(a, b):
    y = torch.empty(a.shape[0], dtype=torch.float64, device=a.device)
    dots[(a.shape[0],)](a, b, y, COLUMNS=a.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return launch(a, b)
