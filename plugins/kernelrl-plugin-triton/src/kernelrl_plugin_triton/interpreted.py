"""Patches of Triton's interpreter: an autotuner that selects, errors with the kernel's line, and closed tensors.

Imported by the zygote. The autotuner uses the first configuration that remains after pruning: times are not meaningful
in the interpreter, and there is no driver to measure them. On a GPU the autotuner measures.

The interpreter executes a kernel as Python, which could compute with any library. Here, as on a GPU, only Triton can
read the values of a tensor: its text is that of its type, `print` writes to the stdout from before the candidate was
loaded, and only integers can be indices.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import os
import sys
import types
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, TensorHandle
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelrl_judge import provenance
from kernelrl_plugin_triton import accepted, bounds, hints, orders, products, races


def _bench(self: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
    return [1.0, 1.0, 1.0]


def _unwrapped(call: Any) -> Any:
    """Raise the kernel's own exception. The interpreter would wrap it in another one, without the kernel's line."""

    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(self, *arguments, **named)
        except InterpreterError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None

    return wrapper


class _Handle(TensorHandle):
    """Handle of a tensor whose values are not among its attributes."""

    __slots__ = ("_kept",)

    def set_attr(self, key: str, value: Any) -> None:
        hints.check(key, value, _KEPT.__get__(self))
        super().set_attr(key, value)


def _values(self: TensorHandle) -> Any:
    if not sys._getframe(1).f_code.co_filename.startswith(_TRITON):
        raise AttributeError("a kernel cannot read a tensor's values from Python; compute with triton.language")
    return _KEPT.__get__(self)


def _set_values(self: TensorHandle, values: Any) -> None:
    # The constructor of the class is generated code.
    if hasattr(self, "attr") and not sys._getframe(1).f_code.co_filename.startswith(_TRITON):
        raise AttributeError("a kernel cannot change a tensor's values from Python; compute with triton.language")
    _KEPT.__set__(self, values)


def _without_values(patch: Any) -> Any:
    """Remove the values of tensors from their text and from indexing."""
    text = tl.tensor.__str__

    @functools.wraps(patch)
    def wrapper(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        read = tensor.__index__

        def index(self: Any) -> int:
            if not self.dtype.is_int():
                raise TypeError(f"{self.dtype} cannot be used as an index; compute with triton.language")
            return int(read(self))

        for name, method in (("__str__", text), ("__repr__", text), ("__index__", index)):
            scope.set_attr(tensor, name, method)

    return wrapper


def _in_place(copied: Any) -> Any:
    """Pass CPU tensors to the kernel directly. The interpreter would copy them."""

    @functools.wraps(copied)
    def wrapper(self: Any, arguments: Any, named: Any) -> Any:
        # Without the candidate's torch functions: they must not observe this access.
        with torch._C.DisableTorchFunction():
            lie_here = all(map(_lies_here, (*arguments, *named.values())))
        return (arguments, named) if lie_here else copied(self, arguments, named)

    return wrapper


def _lies_here(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_lies_here, value))
    if type(value) in (TensorWrapper, TensorDescriptor):
        value = value.base
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return bool(value.is_cpu)
    return not hasattr(value, "data_ptr")


def _copied_back(copied: Any) -> Any:
    @functools.wraps(copied)
    def wrapper(self: Any, arguments: Any, on_host: Any, named: Any, named_on_host: Any) -> None:
        if on_host is not arguments:
            copied(self, arguments, on_host, named, named_on_host)

    return wrapper


def _patched_again(patch: Any) -> Any:
    """Cache the replaced members of `triton.language`. The interpreter would search for them at each launch."""
    known: dict[tuple[Any, ...], tuple[tuple[Any, str, Any, Any], ...]] = {}

    @functools.wraps(patch)
    def wrapper(function: Any) -> Any:
        languages = [id(value) for value in function.__globals__.values() if value is tl or value is tl.core]
        # A function called by a kernel sees the language as patched for that kernel.
        key = tl.core.is_builtin(tl.load), *languages
        changes = known.get(key)
        if changes and all(getattr(owner, name, _MISSING) is before for owner, name, before, _ in changes):
            scope = interpreter._LangPatchScope()
            for owner, name, before, after in changes:
                setattr(owner, name, after)
                scope._changes.append((owner, name, before))
            return scope
        scope = patch(function)
        first: dict[tuple[int, str], Any] = {}
        for owner, name, before in scope._changes:
            first.setdefault((id(owner), name), (owner, name, before, vars(owner)[name]))
        known[key] = tuple(first.values())
        return scope

    return wrapper


def _inspect() -> types.ModuleType:
    """A replacement for `inspect` in the interpreter, which lists all members of `triton.language` at each launch.

    It returns only the members that the interpreter uses: built-in functions of the language.
    """
    found = types.ModuleType("inspect")
    vars(found).update(vars(inspect))
    vars(found)["getmembers"] = lambda owner: [(name, getattr(owner, name)) for name in _builtin_names(owner)]
    return found


@functools.cache
def _builtin_names(owner: Any) -> tuple[str, ...]:
    return tuple(name for name, member in inspect.getmembers(owner) if interpreter.tl.core.is_builtin(member))


_TRITON = os.path.dirname(triton.__file__) + os.sep
_MISSING = interpreter._MISSING
_KEPT: Any = vars(_Handle)["_kept"]
del _Handle._kept
_Handle.data = property(_values, _set_values)  # type: ignore[assignment]
interpreter.TensorHandle = _Handle
Autotuner._bench = _bench
for _class in (GridExecutor, InterpretedFunction):
    _class.__call__ = _unwrapped(_class.__call__)
products.install(_KEPT.__get__)
orders.install(_KEPT.__get__, races.begin_anew)
races.install(_KEPT.__get__)
provenance.launches_tell()
interpreter.inspect = _inspect()
GridExecutor._init_args_hst = _in_place(GridExecutor._init_args_hst)
GridExecutor._restore_args_dev = _copied_back(GridExecutor._restore_args_dev)
if not interpreter.interpreter_builder.options.debug:
    # Overflow checks of integers are device assertions, active only with `debug`.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
interpreter._patch_lang_tensor = _without_values(interpreter._patch_lang_tensor)
interpreter._patch_lang = _patched_again(interpreter._patch_lang)
bounds.install(_KEPT.__get__)
# Last, so that it wraps the other patches: its own calls are not part of a launch.
accepted.install()
# A candidate may replace `sys.stdout`.
interpreter.print = functools.partial(builtins.print, file=sys.stdout)
