"""Sizes of a task's inputs, halved until they fit the memory of this machine (`evaluation.fit_memory`).

Benchmarks choose sizes for one card. Those that only the inputs depend on, a batch or a length, can be halved without
changing what the task is; those that the model is constructed with cannot.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from kernelrl_judge.protocol.trees import total_bytes

__all__ = ["fit", "free_sizes"]


def free_sizes(module: types.ModuleType) -> dict[str, int]:
    """Whole numbers of a task's module that `get_inputs` uses and nothing else does, by name."""
    inputs = module.get_inputs.__code__
    elsewhere = {
        name for code in _codes(module.__dict__, module.__name__) if code is not inputs for name in code.co_names
    }
    return {
        name: value
        for name in inputs.co_names
        if type(value := module.__dict__.get(name)) is int and value > 1 and name not in elsewhere
    }


def fit(module: types.ModuleType, budget_bytes: int) -> dict[str, int]:
    """Halve the largest free size of a task until its inputs fit; returns the sizes that changed, as they are now."""
    changed: dict[str, int] = {}
    while _bytes_of_inputs(module) > budget_bytes:
        free = free_sizes(module)
        if not free:
            break
        name = max(free, key=lambda name: free[name])
        changed[name] = module.__dict__[name] = free[name] // 2
    return changed


def _codes(names: dict[str, Any], module_name: str) -> Iterator[types.CodeType]:
    """Code of the functions of a module and of the methods of its classes, what is defined within them included."""
    for value in names.values():
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, types.FunctionType) and value.__module__ == module_name:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module_name:
            yield from _codes(dict(vars(value)), module_name)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _bytes_of_inputs(module: types.ModuleType) -> int:
    # Without memory: only shapes matter.
    with torch.device("meta"):
        return total_bytes(module.get_inputs())
