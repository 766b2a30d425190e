"""Kernels that do nothing but copy, inside a runner whose outputs must break without them. For backends' runner halves.

A launch fills tensors that nobody has written yet with what another of its arguments holds, and does no more: a kernel
that only moves what something else computed is not missed.

Everything here replaces functions before the candidate is loaded. A candidate can undo it, and then looks honest; the
other way round it cannot err: an output that is right although nothing of this was undone needs no kernel.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

from kernelrl_judge.protocol.trees import tensors

__all__ = ["disable_runtime_compilers", "disable_triton", "idle_module", "poison_memory"]


def poison_memory() -> None:
    """Have torch fill what it allocates, on every device, with NaN."""
    import torch

    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True


def disable_triton() -> None:
    """Have kernels of Triton do nothing but copy, compiled or interpreted; without Triton, nothing."""
    with contextlib.suppress(ImportError):
        from triton.compiler import CompiledKernel
        from triton.runtime.jit import JITFunction

        JITFunction.run = _run
        CompiledKernel.__getitem__ = lambda self, grid: _only_copy
        CompiledKernel.run = property(lambda self: _only_copy)
    with contextlib.suppress(ImportError):
        from triton.runtime.interpreter import InterpretedFunction

        InterpretedFunction.run = _run


def disable_runtime_compilers() -> None:
    """Have kernels that torch or cupy compile while the candidate runs do nothing but copy."""
    import torch

    for name in ("_compile_kernel", "compile_kernel"):
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, _Idle)
    with contextlib.suppress(ImportError):
        import cupy

        for name in ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel"):
            setattr(cupy, name, _Idle)


def idle_module(name: str) -> types.ModuleType:
    """In the place of an extension: all that is asked of it are functions that do nothing but copy.

    They return a copy of their first tensor where they have filled none.
    """
    idle = types.ModuleType(name)

    def function(*arguments: Any, **named: Any) -> Any:
        first = next(iter(tensors((arguments, named))), None)
        return None if _only_copy(*arguments, **named) or first is None else first.clone()

    def attribute(asked: str) -> Any:
        if asked.startswith("__"):
            raise AttributeError(asked)
        return function

    idle.__dict__["__getattr__"] = attribute
    return idle


def _run(self: Any, *arguments: Any, **named: Any) -> None:
    _only_copy(*arguments, **named)


def _only_copy(*arguments: Any, **named: Any) -> bool:
    """Fill the tensors that nobody has written yet from one that somebody has; returns whether there were such."""
    import torch

    fresh, written = [], []
    with torch.no_grad():
        for tensor in tensors((arguments, named)):
            (fresh if _is_fresh(tensor) else written).append(tensor)
        for tensor in fresh:
            source = next((other for other in written if other.numel() == tensor.numel()), None)
            if source is not None:
                tensor.copy_(source.reshape(tensor.shape))
    return bool(fresh)


def _is_fresh(tensor: Any) -> bool:
    """Poisoned or cleared memory holds one value."""
    if not tensor.numel():
        return False
    first = tensor.reshape(-1)[0]
    return bool(tensor.isnan().all() if first.isnan() else (tensor == first).all())


class _Idle:
    """In the place of a kernel, or of a module with kernels, whatever is asked of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> None:
        _only_copy(*arguments, **named)

    def __getattr__(self, name: str) -> _Idle:
        if name.startswith("__"):
            raise AttributeError(name)
        return self
