"""The worked examples of the retriever `overlap`."""

from kernelrl_core.api.retrievers import Example

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {torch}
"""
TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(source, target, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(source + at, mask=at < size)
    tl.store(target + at, {triton}, mask=at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        target = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, target, x.numel(), 1024)
        return target
"""


def _elementwise(name: str, reference: str, kernel: str) -> Example:
    sources = REFERENCE.format(torch=reference), TRITON.format(triton=kernel)
    return Example(*sources, name=name, origin="overlap@1", id=f"overlap/{name}")


CORPUS = {
    "triton": (
        _elementwise("relu", "torch.relu(x)", "tl.maximum(x, 0.0)"),
        _elementwise("square", "x * x", "x * x"),
    )
}
"""Backend -> its examples."""
