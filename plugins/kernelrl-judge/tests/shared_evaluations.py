"""Evaluations by one pool of judges, and the kernel that most candidates of these tests change."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, EvaluationSettings
from kernelrl_judge.client.pool import JudgePool
from kernelrl_testing.values import make_request

_Result = TypeVar("_Result")
_SETTINGS = frozenset(attrs.fields_dict(EvaluationSettings))

LANES_PER_GPU = 2
SEED = "ab" * 16
USERS_KEY = "value-of-a-key-9c41"
"""Value of a variable in the environment of the judges."""

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(300)]


def get_init_inputs():
    return []
"""

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        # HERE
        y = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
        return y
"""
"""A correct candidate for `REFERENCE`."""


LARGE_REFERENCE = REFERENCE.replace("torch.randn(300)", "torch.randn(1 << 22)")
"""The same reference with inputs whose calls take long enough to be timed well."""

NVRTC_SOURCE = '''\
SOURCE = r"""
extern "C" __global__ void twice_relu(const float* x, float* y, int n) {
    // HERE
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
"""
'''
NVRTC = f"""\
import torch

{NVRTC_SOURCE}
kernel = torch.cuda._compile_kernel(SOURCE, "twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernel(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), args=[x, y, n])
        return y
"""
"""A correct CUDA candidate, compiled at run time."""


def kernel_with(lines: str, *, before: str = "") -> str:
    """`KERNEL` with lines of code at the beginning of `forward`.

    Args:
        before: text in front of the class.
    """
    indented = "\n        ".join(lines.splitlines())
    source = KERNEL.replace("        # HERE", f"        {indented}")
    return source.replace("class ModelNew", f"{before}class ModelNew")


def cpu_request(
    source: str, reference: str = REFERENCE, *, backend: str = "triton", **fields: Any
) -> EvaluationRequest:
    """A request for the CPU; Triton's kernels are interpreted.

    Args:
        fields: fields of the request, such as `kernels`, and of its settings.
    """
    options = {"mode": "interpreter"} if backend == "triton" else {}
    return _request(source, reference, backend, options, {"timeout_s": 20.0} | fields)


def gpu_request(
    source: str, reference: str = REFERENCE, *, backend: str = "triton", **fields: Any
) -> EvaluationRequest:
    """A request for a GPU, with `fields` as for `cpu_request`."""
    return _request(source, reference, backend, {"mode": "gpu"}, fields)


def _request(
    source: str, reference: str, backend: str, options: Mapping[str, str], fields: Mapping[str, Any]
) -> EvaluationRequest:
    settings = {name: value for name, value in fields.items() if name in _SETTINGS}
    others = {name: value for name, value in fields.items() if name not in _SETTINGS}
    fixed = {"task_id": "test/task", "backend_options": options, "seed": SEED}
    return make_request(source, reference, backend, settings=settings, **(fixed | others))


class Evaluations:
    """A pool of judges, with the event loop that it runs in."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.pool = self.run(_new_pool())

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine, in the event loop of the pool."""
        return self._runner.run(coroutine)

    def evaluate(self, source: str, reference: str = REFERENCE, **fields: Any) -> Evaluation:
        """Evaluate one candidate on the CPU; `fields` are those of `cpu_request`."""
        return self.evaluate_request(cpu_request(source, reference, **fields))

    def evaluate_on_gpu(self, source: str, reference: str = REFERENCE, **fields: Any) -> Evaluation:
        """Evaluate one candidate on a GPU; `fields` are those of `gpu_request`."""
        return self.evaluate_request(gpu_request(source, reference, **fields))

    def evaluate_request(self, request: EvaluationRequest) -> Evaluation:
        return self.run(self.pool.evaluate(request))

    def evaluate_concurrently(self, requests: Iterable[EvaluationRequest]) -> list[Evaluation]:
        """Evaluations of several requests, in their order."""

        async def evaluate_all() -> list[Evaluation]:
            return await asyncio.gather(*(self.pool.evaluate(request) for request in requests))

        return self.run(evaluate_all())

    def __enter__(self) -> Evaluations:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.pool.aclose())
        self._runner.close()


async def _new_pool() -> JudgePool:
    return JudgePool(workers=1, gpu_workers=LANES_PER_GPU)
