"""Accept in interpreted kernels and launches only what Triton accepts on a device.

The interpreter executes a kernel's body as Python, so a function of any library or an object of any class would work.
Triton compiles neither. Here both raise the error that Triton raises on a device. Code that a launch calls besides its
kernel, the grid function and hooks, is called before the launch, as on a device.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import inspect
import math
import operator
import os
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter, InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction, TensorWrapper, mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelrl_core.api.sources import free_names
from kernelrl_plugin_triton.compiled import not_compiled

__all__ = ["install"]

_TRITON = os.path.dirname(triton.__file__) + os.sep
_NUMBERS = (bool, int, float, type(None))
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_ATTRIBUTES = frozenset(name for name in dir(torch.Tensor) if not name.startswith("_"))
_CLASSES = frozenset(kind for kind in (*vars(tl).values(), *vars(tl.core).values()) if isinstance(kind, type))
_TYPES = tuple(kind for kind in _CLASSES if issubclass(kind, tl.dtype))
_BUILTINS = frozenset(
    (
        *(len, list, range, float, int, isinstance, getattr, hasattr, print, min, max),
        *(abs, bool, tuple, str, zip, enumerate, reversed, sum, all, any, slice, round, Exception, AssertionError),
    )
)
"""Built-in functions and types that Triton compiles, or that only apply operators to values."""
_NOT_COMPILED = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Yield, ast.YieldFrom)
_OF_KERNELS = frozenset(name for name in dir(InterpretedFunction) if not name.startswith("_"))
_UNDEFINED = object()


class _Body:
    """A rewritten function: its source, and the global names in it, each with the attributes accessed on it."""

    def __init__(self, function: Any, source: str) -> None:
        tree = ast.parse(source)
        self.function, self.source = function, source
        for node in ast.walk(tree):
            if isinstance(node, _NOT_COMPILED):
                self.refuse(node, f"unsupported AST node type: {type(node).__name__}")
        self.names = dict(_globals_in(tree))
        self.constants: dict[str, Any] = {}
        """Values of constant globals at the first launch."""

    def refuse(self, node: ast.AST, why: str) -> None:
        """Raise the error that Triton raises for a source that it cannot compile."""
        raise CompilationError(self.source, node, why)


_bodies: dict[Any, _Body] = {}
_rewritten: dict[Any, Any] = {}
"""Rewritten function → original function."""


def install() -> None:
    """Check every launch of this process from now on."""
    FunctionRewriter.rewrite_ast = _rewriting(FunctionRewriter.rewrite_ast)
    FunctionRewriter._transform_ast = _transforming(FunctionRewriter._transform_ast)
    ConstexprFunction.__call__ = _of_constants(ConstexprFunction.__call__)
    interpreter.GridExecutor.__call__ = _launching(interpreter.GridExecutor.__call__)


# No functools.wraps: `__wrapped__` would give access to the unchecked functions.


def _rewriting(rewrite: Any) -> Any:
    def wrapper(self: Any) -> Any:
        made = rewrite(self)
        _rewritten[made] = self.fn
        return made

    return wrapper


def _transforming(transform: Any) -> Any:
    def wrapper(self: Any, source: str) -> Any:
        if not _is_tritons(self.fn):
            _bodies[self.fn] = body = _Body(self.fn, source)
            for node, why in not_compiled(_function(ast.parse(source))):
                body.refuse(node, why)
        return transform(self, source)

    return wrapper


def _of_constants(call: Any) -> Any:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        if not _is_tritons(self.fn):
            for value in (*arguments, *named.values()):
                if isinstance(value, tl.tensor):
                    raise TypeError(f"{self.fn.__name__} takes compile-time constants, not tensors")
        return call(self, *arguments, **named)

    return wrapper


def _launching(call: Any) -> Any:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        parameters = inspect.signature(self.fn).parameters
        named = {name: value for name, value in named.items() if name in parameters}
        bound = inspect.getcallargs(self.fn, *arguments, **named)
        for name, value in bound.items():
            _check_argument(value, is_constant=name in self.constexprs)
        _check_globals(_rewritten.get(self.fn), set())
        hooks, self.pre_run_hooks = self.pre_run_hooks, []
        for hook in hooks:
            hook(*arguments, **named)
        self.grid = tuple(map(operator.index, self.grid(bound) if callable(self.grid) else self.grid))
        named = {name: _plain(value) for name, value in named.items()}
        return call(self, *map(_plain, arguments), **named)

    return wrapper


def _check_argument(value: Any, *, is_constant: bool, has_names: bool = True) -> None:
    """Accept the argument of a launch if Triton accepts it.

    Args:
            has_names: whether tuples may be named tuples; those are copied.

    Raises:
            TypeError: the value is not a tensor, number, descriptor, kernel or tuple of these; a constant may also be a
                string or a type.
    """
    kind = type(value)
    if kind in _NUMBERS or (kind in _TENSORS and not _ATTRIBUTES & vars(value).keys()):
        return
    if kind is tuple or (has_names and issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple):
        for item in tuple.__iter__(value):
            _check_argument(item, is_constant=is_constant, has_names=has_names)
    elif kind is tl.constexpr:
        _check_argument(value.value, is_constant=True, has_names=False)
    elif kind is TensorWrapper:
        _check_argument(value.base, is_constant=False)
    elif kind is TensorDescriptor:
        for item in (value.base, *(tuple(part) for part in (value.shape, value.strides, value.block_shape))):
            _check_argument(item, is_constant=False)
        if any(type(part) not in (list, tuple, torch.Size) for part in (value.shape, value.strides, value.block_shape)):
            raise TypeError("the shape of a tensor descriptor must be a list")
    elif kind is InterpretedFunction:
        _check_kernel(value, set())
    elif not is_constant or not (kind in (str, torch.dtype) or _is_of_the_language(value)):
        if not is_constant:
            # Raises its own error for most values.
            mangle_type(value)
        raise TypeError(f"failed to specialize argument of type: {kind.__name__}")


def _plain(value: Any) -> Any:
    """Return the value with named tuples copied to a class that contains nothing of the candidate's."""
    if not isinstance(value, tuple):
        return value
    items = [_plain(item) for item in tuple.__iter__(value)]
    return tuple(items) if type(value) is tuple else _named_tuple(type(value).__name__, type(value)._fields)(*items)


@functools.cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> type:
    return collections.namedtuple(name, fields)  # type: ignore[misc]


def _check_kernel(kernel: Any, seen: set[Any]) -> None:
    if _is_tritons(kernel.fn):
        return
    if type(kernel) is InterpretedFunction:
        if vars(kernel).keys() & _OF_KERNELS:
            raise ValueError(f"kernel {kernel.fn.__name__} has replaced methods of Triton")
        _check_globals(_rewritten.get(kernel.rewrite()), seen)
        return
    if kernel.fn not in _bodies:
        # A function that Triton calls at compile time; the interpreter calls it during the launch.
        _bodies[kernel.fn] = _Body(kernel.fn, textwrap.dedent("".join(inspect.getsourcelines(kernel.fn)[0])))
    _check_globals(kernel.fn, seen)


def _check_globals(function: Any, seen: set[Any]) -> None:
    """Check the globals that a compiled function uses, and those of the functions that it calls.

    Raises:
        ValueError: the function has no source file.
        CompilationError: it uses a global that Triton does not compile.
        RuntimeError: a constant has changed since the first launch.
    """
    if function in seen:
        return
    seen.add(function)
    body = _bodies.get(function)
    if body is None:
        raise ValueError("@jit functions should be defined in a Python file")
    made = InterpretedFunction.rewritten_fn.get(function, function)
    for value in (*(made.__defaults__ or ()), *(made.__kwdefaults__ or {}).values()):
        _check_argument(value, is_constant=True, has_names=False)
    for (name, *attributes), node in body.names.items():
        value = function.__globals__.get(name, _UNDEFINED)
        if value is _UNDEFINED:
            value = getattr(builtins, name, _UNDEFINED)
        of_module = _is_module(value)
        while attributes and _is_module(value):
            value = getattr(value, attributes.pop(0), _UNDEFINED)
        kind = type(value)
        if value is _UNDEFINED:
            # Executing the name raises NameError with the line.
            continue
        if kind in (InterpretedFunction, ConstexprFunction) and not attributes:
            _check_kernel(value, seen)
        elif kind is tl.constexpr:
            _check_argument(value, is_constant=True)
            before = body.constants.setdefault(name, value.value)
            if before is not value.value and before != value.value:
                raise RuntimeError(f"Global variable {name} has changed since we compiled this kernel")
        elif not (of_module and kind in (*_NUMBERS, torch.dtype)) and not _is_compiled(value):
            body.refuse(
                node,
                f"NameError('Cannot access global variable {name} from within @jit'ed function. Triton kernels can "
                "only access global variables that are constexpr (`x = triton.language.constexpr(42)`).')",
            )


def _is_compiled(value: Any) -> bool:
    return (
        _is_module(value)
        or _is_of_the_language(value)
        or (isinstance(value, types.BuiltinFunctionType) and value.__self__ is math)
        or (isinstance(value, type | types.BuiltinFunctionType) and value in _BUILTINS)
    )


def _is_module(value: Any) -> bool:
    """Whether a value is a module whose attributes do not change between accesses."""
    return type(value) is types.ModuleType and (value in (torch, np) or "__getattr__" not in vars(value))


def _is_of_the_language(value: Any) -> bool:
    """Whether a value is a function, class or type of Triton."""
    if isinstance(value, types.FunctionType):
        # A function decorated with `builtin` or `extern` is in a closure cell of its wrapper.
        inner = [cell.cell_contents for cell in value.__closure__ or ()]
        return all(_is_tritons(part) for part in (value, *inner) if isinstance(part, types.FunctionType))
    return type(value) in (*_TYPES, JITFunction) or (isinstance(value, type) and value in _CLASSES)


def _is_tritons(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return isinstance(code, types.CodeType) and code.co_filename.startswith(_TRITON)


def _function(tree: ast.Module) -> ast.FunctionDef:
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def _globals_in(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    """Yield the global names used in a function, each with the attributes accessed on it, and the node."""
    function = _function(tree)
    # Defaults of arguments are checked by value.
    defaults = [*function.args.defaults, *(item for item in function.args.kw_defaults if item is not None)]
    free = free_names(function) - {id(node) for item in defaults for node in ast.walk(item)}
    inside: set[int] = set()
    for node in ast.walk(tree):
        parts: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            parts.insert(0, root.attr)
            root = root.value
            inside.add(id(root))
        # `ast.walk` visits outer nodes first, so the longest attribute chain comes first.
        if isinstance(root, ast.Name) and id(root) in free and id(node) not in inside:
            yield (root.id, *parts), node
