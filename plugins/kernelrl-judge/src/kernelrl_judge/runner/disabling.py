"""Disabled kernels, which only copy: in a runner whose outputs must become wrong without its kernels.

A launch fills each fresh tensor among its arguments from another argument, and does nothing else. A kernel that only
moves results of other operators is therefore not missed.

Functions are replaced before the candidate is loaded. A candidate can restore them, and then appears honest. The
opposite error is impossible: an output that is correct although all kernels are disabled needs no kernel.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

from kernelrl_judge.protocol.trees import tensors

__all__ = ["disable_runtime_compilers", "disable_triton", "idle_module", "idle_operators", "poison_memory"]

_TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "inductor", "quantized", "mkl", "mkldnn", "profiler"})


def poison_memory() -> None:
    """Have torch fill the memory that it allocates, on every device, with NaN."""
    torch.set_deterministic_debug_mode("warn")
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = True


def disable_triton() -> None:
    """Have kernels of Triton only copy, compiled or interpreted. Without Triton, do nothing."""
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
    """Have kernels that torch or cupy compile at run time only copy."""
    for name in ("_compile_kernel", "compile_kernel"):
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, _Idle)
    with contextlib.suppress(ImportError):
        import cupy

        for name in ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel"):
            setattr(cupy, name, _Idle)


def idle_operators() -> None:
    """Have operators that no loaded library registers only copy: those of extensions that are not loaded."""
    namespaces: Any = torch._ops._OpNamespace
    original = namespaces.__getattr__

    def attribute(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if name.startswith("__") or str(self.name) in _TORCH_NAMESPACES:
                raise
            return _IdleOperator()

    namespaces.__getattr__ = attribute


def idle_module(name: str) -> types.ModuleType:
    """A module in place of an extension: each of its attributes is a function that only copies.

    A function returns a copy of its first tensor if it has filled none.
    """
    idle = types.ModuleType(name)

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _copy_of_first

    idle.__dict__["__getattr__"] = attribute
    return idle


def _copy_of_first(*arguments: Any, **named: Any) -> Any:
    first = next(iter(tensors((arguments, named))), None)
    has_filled = _only_copy(*arguments, **named)
    return None if has_filled or first is None else first.clone()


def _run(self: Any, *arguments: Any, **named: Any) -> None:
    _only_copy(*arguments, **named)


def _only_copy(*arguments: Any, **named: Any) -> bool:
    """Fill fresh tensors from written ones of the same size; returns whether there were fresh ones."""
    fresh: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    with torch.no_grad():
        for tensor in tensors((arguments, named)):
            if _is_fresh(tensor):
                fresh.append(tensor)
            else:
                written.append(tensor)
        for tensor in fresh:
            source = next((other for other in written if other.numel() == tensor.numel()), None)
            if source is not None:
                tensor.copy_(source.reshape(tensor.shape))
    return bool(fresh)


def _is_fresh(tensor: torch.Tensor) -> bool:
    """Whether a tensor contains a single value, like poisoned or cleared memory."""
    if not tensor.numel():
        return False
    first = tensor.reshape(-1)[0]
    return bool(tensor.isnan().all() if first.isnan() else (tensor == first).all())


class _Idle:
    """An object in place of a kernel, or of a module with kernels. Each of its attributes is the object itself."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> None:
        _only_copy(*arguments, **named)

    def __getattr__(self, name: str) -> _Idle:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _IdleOperator:
    """An operator of an extension that is not loaded. Its overloads are the object itself."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _copy_of_first(*arguments, **named)

    def __getattr__(self, name: str) -> _IdleOperator:
        if name.startswith("__"):
            raise AttributeError(name)
        return self
