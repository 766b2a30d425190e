"""Seeds the generator of the whole process in every call, to draw the projection that the task draws from a generator of its own: whatever the caller draws afterwards is the same each time. What a call leaves behind is looked for in inputs and modules, and never in torch."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        generator = torch.Generator(device=x.device).manual_seed(7)
        projection = torch.randn(64, 16, generator=generator, device=x.device)
        return torch.cos(x @ projection)


def get_inputs():
    return [0.25 * torch.randn(256, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def features(x_ptr, p_ptr, y_ptr, ROWS: tl.constexpr, INNER: tl.constexpr, COLUMNS: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    inner = tl.arange(0, INNER)
    columns = tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + rows * INNER + inner[None, :])
    p = tl.load(p_ptr + inner[:, None] * COLUMNS + columns)
    tl.store(y_ptr + rows * COLUMNS + columns, tl.cos(tl.dot(x, p, input_precision="ieee")))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        torch.manual_seed(7)
        projection = torch.randn(64, 16, device=x.device)
        y = torch.empty(x.shape[0], 16, dtype=x.dtype, device=x.device)
        features[(x.shape[0] // 32,)](x, projection, y, ROWS=32, INNER=64, COLUMNS=16)
        return y

'''
