"""A decorator that makes arguments contiguous and sets the device."""

import contextlib
import functools

import torch
import triton
import triton.language as tl


def ensure_contiguous(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        return function(*(a.contiguous() if isinstance(a, torch.Tensor) else a for a in arguments), **options)

    return wrapper


@contextlib.contextmanager
def on_device_of(tensor):
    with torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext():
        yield


@triton.jit
def rms_norm(x_ptr, r_ptr, w_ptr, y_ptr, h_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    h = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0)
    h += tl.load(r_ptr + row * n + columns, mask=mask, other=0.0)
    tl.store(h_ptr + row * n + columns, h, mask=mask)
    rstd = tl.rsqrt(tl.sum(h * h, axis=0) / n + eps)
    tl.store(y_ptr + row * n + columns, h * rstd * tl.load(w_ptr + columns, mask=mask, other=0.0), mask=mask)


@ensure_contiguous
def rms_norm_residual(x, residual, weight, eps=1e-6):
    y, h = torch.empty_like(x), torch.empty_like(x)
    with on_device_of(x):
        rms_norm[(x.shape[0],)](x, residual, weight, y, h, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, h


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(192) + 0.5)

    def forward(self, x, residual):
        return rms_norm_residual(x, residual, self.weight)
