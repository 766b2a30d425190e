"""What Triton's interpreter lacks here: an autotuner that can choose, and errors that show where they come from.

Imported by the zygote. Every configuration takes as long as any other, so the first that is left after pruning is
used: no run time means anything there, and there is no driver to measure one with. On a GPU the autotuner measures.

The interpreter runs a kernel as Python, which could compute with anything. Here only Triton itself reads the values
behind its tensors, as on a GPU: their text is that of their type, what a kernel prints goes where it went before the
candidate came, and only whole numbers are indices.
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
    """The interpreter puts the text of each exception of a kernel into one of its own, without the kernel's line."""

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
    """Behind a tensor. Its values are nowhere among its attributes."""

    __slots__ = ("_kept",)

    def set_attr(self, key: str, value: Any) -> None:
        hints.look_at(key, value, _KEPT.__get__(self))
        super().set_attr(key, value)


def _values(self: TensorHandle) -> Any:
    if not sys._getframe(1).f_code.co_filename.startswith(_TRITON):
        raise AttributeError("a kernel cannot read the values behind a tensor; compute with triton.language")
    return _KEPT.__get__(self)


def _set_values(self: TensorHandle, values: Any) -> None:
    # The constructor of the class comes from generated code.
    if hasattr(self, "attr") and not sys._getframe(1).f_code.co_filename.startswith(_TRITON):
        raise AttributeError("a kernel cannot change the values behind a tensor; compute with triton.language")
    _KEPT.__set__(self, values)


def _without_values(patch: Any) -> Any:
    """The interpreter has tensors tell their values, as text and as indices."""
    text = tl.tensor.__str__

    @functools.wraps(patch)
    def wrapper(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        read = tensor.__index__

        def index(self: Any) -> int:
            if not self.dtype.is_int():
                raise TypeError(f"{self.dtype} is no index; compute with triton.language")
            return int(read(self))

        for name, method in (("__str__", text), ("__repr__", text), ("__index__", index)):
            scope.set_attr(tensor, name, method)

    return wrapper


def _in_place(copied: Any) -> Any:
    """The interpreter gives a kernel copies in host memory, also of what lies there."""

    @functools.wraps(copied)
    def wrapper(self: Any, arguments: Any, named: Any) -> Any:
        # Who lists what a call hands out of torch has nothing to learn from this.
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
    """The interpreter looks through its language for what to replace anew with each launch."""
    known: dict[tuple[Any, ...], tuple[tuple[Any, str, Any, Any], ...]] = {}

    @functools.wraps(patch)
    def wrapper(function: Any) -> Any:
        languages = [id(value) for value in function.__globals__.values() if value is tl or value is tl.core]
        # A function that a kernel calls finds the language as it was replaced for the kernel.
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
    """`inspect` for the interpreter, which asks for all members of its language anew with each launch.

    Given are those that it looks for: built-in functions of the language.
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
    # What is computed to see whether whole numbers overflow is looked at by assertions of the device, when debugging.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
interpreter._patch_lang_tensor = _without_values(interpreter._patch_lang_tensor)
interpreter._patch_lang = _patched_again(interpreter._patch_lang)
bounds.install(_KEPT.__get__)
# Around all of them: what it calls is no part of a launch.
accepted.install()
# A candidate may replace `sys.stdout`.
interpreter.print = functools.partial(builtins.print, file=sys.stdout)
