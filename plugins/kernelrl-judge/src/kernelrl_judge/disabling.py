"""Kernels that do nothing, inside a runner whose outputs must break without them. For runner halves of backends.

Everything here replaces functions before the candidate is loaded. A candidate can undo it, and then looks honest; the
other way round it cannot err: an output that is right although nothing of this was undone needs no kernel.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

__all__ = ["disable_runtime_compilers", "disable_triton", "idle_module", "poison_memory"]


def poison_memory() -> None:
    """Have torch fill what it allocates, on every device, with what is no number."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def disable_triton() -> None:
    """Have kernels of Triton launch nothing, compiled or interpreted; without Triton, nothing."""
    with contextlib.suppress(ImportError):
        from triton.compiler import CompiledKernel
        from triton.runtime.jit import JITFunction

        JITFunction.run = _nothing
        CompiledKernel.__getitem__ = lambda self, grid: _nothing
        CompiledKernel.run = property(lambda self: _nothing)
    with contextlib.suppress(ImportError):
        from triton.runtime.interpreter import InterpretedFunction

        InterpretedFunction.run = _nothing


def disable_runtime_compilers() -> None:
    """Have kernels that torch or cupy compile while the candidate runs do nothing."""
    import torch

    for name in ("_compile_kernel", "compile_kernel"):
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, _Idle)
    with contextlib.suppress(ImportError):
        import cupy

        for name in ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel"):
            setattr(cupy, name, _Idle)


def idle_module(name: str) -> types.ModuleType:
    """In the place of an extension: all that is asked of it are functions that do nothing."""
    idle = types.ModuleType(name)

    def attribute(asked: str) -> Any:
        if asked.startswith("__"):
            raise AttributeError(asked)
        return _nothing

    idle.__dict__["__getattr__"] = attribute
    return idle


def _nothing(*_: Any, **__: Any) -> None:
    pass


class _Idle:
    """In the place of a kernel, or of a module with kernels, whatever is asked of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> _Idle:
        if name.startswith("__"):
            raise AttributeError(name)
        return self
