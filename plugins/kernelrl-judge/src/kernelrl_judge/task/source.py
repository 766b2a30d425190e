"""A task's own code: executed as a module, under a limit of time, and what it raises.

Benchmarks choose sizes for one card. Those that only the inputs depend on, a batch or a length, are halved until the
inputs fit the memory of this machine (`evaluation.fit_memory`); those that the model is constructed with cannot be.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from kernelrl_judge.protocol.trees import total_bytes

__all__ = ["TaskError", "constructor_arguments", "fitted_sizes", "free_sizes", "load_reference", "of_task"]


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


_LIMIT_S = 300.0
"""For each step of a reference: importing it, making inputs, a call."""
_FITTED = "__kernelrl_sizes__"
_NAMES = ("Model", "get_inputs", "get_init_inputs")


class TaskError(Exception):
    """The task itself cannot be used; the message says why."""


def load_reference(source: str, task_id: str, budget_bytes: int | None = None) -> types.ModuleType:
    """Execute a task's source as a module.

    Args:
        budget_bytes: what the inputs of a call may take; sizes that only they depend on are halved until they do.

    Raises:
        TaskError: it does not run, or lacks one of the three names.
    """
    name = "kernelrl_task_" + hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    module = types.ModuleType(name)
    module.__file__ = f"<task {task_id}>"
    # Classes of the task look their module up when they are copied.
    sys.modules[name] = module
    with of_task(task_id, "import"):
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    missing = [wanted for wanted in _NAMES if not hasattr(module, wanted)]
    if missing:
        raise TaskError(f"task {task_id}: {', '.join(missing)} not defined")
    if budget_bytes is not None:
        with of_task(task_id, "get_inputs()"):
            module.__dict__[_FITTED] = fit(module, budget_bytes)
    return module


def fitted_sizes(module: types.ModuleType) -> dict[str, int]:
    """Sizes that `load_reference` made smaller for the memory at hand, by name."""
    sizes: dict[str, int] = getattr(module, _FITTED, {})
    return sizes


def constructor_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """What `get_init_inputs` returned, as arguments and keywords."""
    if isinstance(given, dict):
        return [], given
    if (
        isinstance(given, list | tuple)
        and len(given) == 2
        and isinstance(given[0], list)
        and isinstance(given[1], dict)
    ):
        return list(given[0]), given[1]
    return list(given), {}


@contextlib.contextmanager
def of_task(task_id: str, place: str) -> Iterator[None]:
    """Turn what the task's code raises into a `TaskError` that names task and place; end code that hangs."""
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    try:
        yield
    except (TaskError, torch.OutOfMemoryError):
        # Whether the device's memory suffices depends on who else uses it.
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())[:500]
        raise TaskError(f"task {task_id}: {place} failed: {type(error).__name__}: {text}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _late(*_: object) -> None:
    raise TimeoutError(f"not finished within {_LIMIT_S:g} s")
