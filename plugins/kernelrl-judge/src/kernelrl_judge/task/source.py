"""The code of a task: its execution as a module under a time limit, and its errors.

Benchmarks choose sizes for one GPU. Sizes on which only the inputs depend, such as a batch or a length, are halved
until the inputs fit into the memory of this machine (`evaluation.fit_memory`). Sizes on which the model depends stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import re
import signal
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

import torch

from kernelrl_judge.protocol.plain_values import NotCarried, plain
from kernelrl_judge.protocol.trees import decoded, leaves, tensors, total_bytes
from kernelrl_judge.protocol.values import ObjectLeaf
from kernelrl_judge.task.torch_settings import forget_settings, settings_of_task

__all__ = [
    "TaskError",
    "constructor_arguments",
    "fit",
    "fitted_sizes",
    "free_sizes",
    "listed_inputs",
    "load_reference",
    "of_task",
    "plain_output",
    "require_carried",
    "require_comparable",
    "resized",
]

_LIMIT_S = 300.0
"""Time limit of each step of a reference: the import of its module, the creation of inputs, a call."""
_FITTED = "__kernelrl_sizes__"
"""Name in a task's module of the sizes that were reduced."""
_NAMES = ("Model", "get_inputs", "get_init_inputs")
_MAX_ERROR_CHARACTERS = 500
_COMPARED = (torch.Tensor, bool, int, float, ObjectLeaf)
"""Types of the leaves of an output that are compared by value."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_SIZE = rf"([\d.]+) ({'|'.join(_UNITS)})"
_DEVICE_SIZES = re.compile(rf"Tried to allocate {_SIZE}\. GPU \d+ has a total capacity of {_SIZE}")
_HOST_BYTES = re.compile(r"you tried to allocate (\d+) bytes")
"""Sizes in the errors of PyTorch's allocators."""


class TaskError(Exception):
    """The task cannot be used; the message gives the reason."""


def free_sizes(module: types.ModuleType) -> dict[str, int]:
    """Integers of a task's module that only `get_inputs` uses, by name."""
    inputs = module.get_inputs.__code__
    elsewhere = {
        name for code in _codes(module.__dict__, module.__name__) if code is not inputs for name in code.co_names
    }
    return {
        name: value
        for name in inputs.co_names
        if type(value := module.__dict__.get(name)) is int and value > 1 and name not in elsewhere
    }


@contextlib.contextmanager
def resized(module: types.ModuleType, least: int) -> Iterator[bool]:
    """Have `get_inputs` draw inputs of other sizes within the context: n/2 + 1 in place of n.

    The sizes are those of `free_sizes`, and the whole numbers written in `get_inputs` that occur nowhere else.

    Args:
        least: smallest size that changes.

    Yields:
        Whether there is a size to change.
    """
    names = module.__dict__
    function = module.get_inputs
    code = function.__code__
    sizes = {name: size for name, size in free_sizes(module).items() if size >= least}
    elsewhere = _numbers_elsewhere(module)

    def changed(constant: Any) -> Any:
        if isinstance(constant, tuple):
            return tuple(map(changed, constant))
        is_size = type(constant) is int and constant >= least and constant not in elsewhere
        return constant // 2 + 1 if is_size else constant

    constants = changed(code.co_consts)
    try:
        names.update({name: size // 2 + 1 for name, size in sizes.items()})
        function.__code__ = code.replace(co_consts=constants)
        yield bool(sizes) or constants != code.co_consts
    finally:
        names.update(sizes)
        function.__code__ = code


def _numbers_elsewhere(module: types.ModuleType) -> set[Any]:
    """Constants in functions of a task's module other than `get_inputs`, with their defaults, and the values of the
    names that they use."""
    inputs = module.get_inputs.__code__
    names = module.__dict__
    codes = [code for code in _codes(names, module.__name__) if code is not inputs]
    constants = [constant for code in codes for constant in code.co_consts]
    values = [names.get(name) for code in codes for name in code.co_names]
    defaults = [value for function in _functions(names, module.__name__) for value in function.__defaults__ or ()]
    found: set[Any] = set()
    remaining = [*constants, *values, *defaults]
    while remaining:
        value = remaining.pop()
        if isinstance(value, tuple | list):
            remaining += value
        elif type(value) is int:
            found.add(value)
    return found


def fit(module: types.ModuleType, budget_bytes: int) -> dict[str, int]:
    """Halve the largest free size of a task until its inputs fit into a number of bytes.

    Returns:
        The new values of the sizes that changed, by name.
    """
    changed: dict[str, int] = {}
    while _bytes_of_inputs(module) > budget_bytes:
        free = free_sizes(module)
        if not free:
            break
        name = max(free, key=lambda name: free[name])
        changed[name] = module.__dict__[name] = free[name] // 2
    return changed


def _codes(names: dict[str, Any], module_name: str) -> Iterator[types.CodeType]:
    """Code of the functions of a module and of the methods of its classes, and all code that is nested in them."""
    for function in _functions(names, module_name):
        yield from _nested(function.__code__)


def _functions(names: dict[str, Any], module_name: str) -> Iterator[types.FunctionType]:
    """Functions of a module and methods of its classes."""
    for value in names.values():
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, types.FunctionType) and value.__module__ == module_name:
            yield value
        elif isinstance(value, type) and value.__module__ == module_name:
            yield from _functions(dict(vars(value)), module_name)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _bytes_of_inputs(module: types.ModuleType) -> int:
    # Only shapes matter, so the tensors need no memory.
    with torch.device("meta"):
        return total_bytes(module.get_inputs())


def load_reference(source: str, task_id: str, budget_bytes: int | None = None) -> types.ModuleType:
    """Execute a task's source as a module.

    Args:
        budget_bytes: limit for the inputs of a call. Sizes on which only they depend are halved until they fit.

    Raises:
        TaskError: the source fails, or lacks one of the three names.
    """
    name = "kernelrl_task_" + hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    module = types.ModuleType(name)
    module.__file__ = _file(task_id)
    # Copies of objects of the task look up the module of their class.
    sys.modules[name] = module
    # `torch.jit.script` and `inspect` read the source of functions.
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    forget_settings(task_id)
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
    """Sizes that `load_reference` reduced to fit into the memory of this machine, by name."""
    sizes: dict[str, int] = getattr(module, _FITTED, {})
    return sizes


def constructor_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments and keywords of the constructor from the value that `get_init_inputs` returned; None: no arguments.

    Raises:
        TypeError: the value is not a list, tuple or dict.
    """
    if given is None:
        return [], {}
    if isinstance(given, dict):
        return [], given
    is_pair = isinstance(given, list | tuple) and len(given) == 2
    if is_pair and isinstance(given[0], list) and isinstance(given[1], dict):
        return list(given[0]), given[1]
    if isinstance(given, str):
        raise TypeError("it returned a text in place of a list")
    return list(given), {}


def listed_inputs(given: Any) -> list[Any]:
    """The inputs of one call from the value that `get_inputs` returned.

    Raises:
        TypeError: the value is not a list or tuple.
    """
    if given is None or isinstance(given, str | dict):
        raise TypeError(f"it returned a value of type {type(given).__name__} in place of a list")
    return list(given)


def require_carried(value: Any, task_id: str, place: str) -> None:
    """
    Args:
        place: of the value in the task, such as `get_inputs() value 2`.

    Raises:
        TaskError: no candidate can be given the value.
    """
    try:
        _require_memory(plain(value))
    except NotCarried as error:
        raise TaskError(f"task {task_id}: {place}{error.path} is {error.what}: no kernel can be given it") from None


def plain_output(output: Any, task_id: str) -> Any:
    """The output of a reference with plain values in place of objects, as outputs of candidates are described.

    Raises:
        TaskError: the output contains a value that cannot be compared.
    """
    try:
        found = plain(output, flat=True)
        _require_memory(found)
        return found
    except NotCarried as error:
        place = f"output {error.path}" if error.path else "the output"
        raise TaskError(
            f"task {task_id}: {place} of Model.forward(...) is {error.what}: it cannot be compared"
        ) from None


def require_comparable(output: Any, task_id: str) -> None:
    """
    Raises:
        TaskError: nothing can be compared: the output holds neither a tensor nor a number, or is NaN everywhere.
    """
    values = [value for _, value in leaves(output)]
    if not any(isinstance(value, _COMPARED) for value in values):
        raise TaskError(
            f"task {task_id}: the output of Model.forward(...) has neither a tensor nor a number to compare"
        )
    found = tensors(output)
    if len(found) == len(values) and _is_nan(found):
        raise TaskError(f"task {task_id}: the output of Model.forward(...) is NaN everywhere")


def _is_nan(found: list[torch.Tensor]) -> bool:
    """Whether tensors have elements, and all are NaN."""
    with_elements = [decoded(tensor) for tensor in found if tensor.numel()]
    return bool(with_elements) and all(bool(tensor.isnan().all()) for tensor in with_elements)


def _require_memory(value: Any) -> None:
    for path, leaf in leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
            raise NotCarried(path, "a tensor without memory (device meta)")


@contextlib.contextmanager
def of_task(task_id: str, place: str) -> Iterator[None]:
    """Turn errors of the task's code into a `TaskError` that names task and place, and end code that hangs."""
    signal.signal(signal.SIGALRM, _raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    try:
        with settings_of_task(task_id):
            yield
    except TaskError:
        raise
    except torch.OutOfMemoryError as error:
        # Lack of device memory may be due to other programs, unless the device is smaller than one tensor.
        sizes = _DEVICE_SIZES.search(str(error))
        if sizes is None or _bytes(sizes[1], sizes[2]) <= _bytes(sizes[3], sizes[4]):
            raise
        wanted, available = f"{sizes[1]} {sizes[2]}", f"the device has {sizes[3]} {sizes[4]}"
        raise TaskError(_needs_memory(task_id, place, wanted, available)) from error
    except BaseException as error:
        # Code of a task may raise exceptions that end a process, such as `KeyboardInterrupt`.
        wanted_bytes = _HOST_BYTES.search(str(error))
        if wanted_bytes is not None:
            wanted = f"{int(wanted_bytes[1]) / (1 << 30):.4g} GiB"
            raise TaskError(_needs_memory(task_id, place, wanted, "this machine has less free")) from error
        text = " ".join(str(error).split())[:_MAX_ERROR_CHARACTERS]
        line = _line(error, task_id)
        raise TaskError(f"task {task_id}: {line}{place} failed: {type(error).__name__}: {text}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _line(error: BaseException, task_id: str) -> str:
    """The last line of the task in the traceback of an error; empty if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _file(task_id)]
    return f"line {lines[-1]}: " if lines else ""


def _file(task_id: str) -> str:
    """Name of the task's file in tracebacks."""
    return f"<task {task_id}>"


def _needs_memory(task_id: str, place: str, wanted: str, available: str) -> str:
    fix = "make the sizes smaller, or set evaluation.fit_memory=true"
    return f"task {task_id}: {place} needs {wanted} of memory for one tensor; {available}; {fix}"


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1024.0 ** _UNITS.index(unit)


def _raise_timeout(*_: object) -> None:
    raise TimeoutError(f"not finished within {_LIMIT_S:g} s")
