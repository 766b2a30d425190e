"""What interpreted kernels and their launches are given: what Triton accepts on a device, and nothing else.

The interpreter runs a kernel's body as Python, so that a function of any library, or an object of any class, would
work there. Triton compiles neither. Here both end with the error that Triton raises on a device. What a launch calls
besides its kernel, the function that makes the grid and hooks, is called before the launch, as on a device.
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
"""What Triton compiles, and what does no more with values than its operators."""
_NOT_COMPILED = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Yield, ast.YieldFrom)
_OF_KERNELS = frozenset(name for name in dir(InterpretedFunction) if not name.startswith("_"))
_UNDEFINED = object()


class _Body:
    """Of a function that was rewritten: its source, and the globals that it names, each with attributes of it."""

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
        """Raise what Triton raises for a source that it cannot compile."""
        raise CompilationError(self.source, node, why)


_bodies: dict[Any, _Body] = {}
_rewritten: dict[Any, Any] = {}
"""What rewriting has made -> the function."""


def install() -> None:
    """Look at every launch of this process from now on."""
    FunctionRewriter.rewrite_ast = _rewriting(FunctionRewriter.rewrite_ast)
    FunctionRewriter._transform_ast = _transforming(FunctionRewriter._transform_ast)
    ConstexprFunction.__call__ = _of_constants(ConstexprFunction.__call__)
    interpreter.GridExecutor.__call__ = _launching(interpreter.GridExecutor.__call__)


# What is wrapped cannot be asked of the wrappers: there would be a way around them.


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
                    raise TypeError(f"{self.fn.__name__} takes values that are known when Triton compiles, no tensors")
        return call(self, *arguments, **named)

    return wrapper


def _launching(call: Any) -> Any:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        parameters = inspect.signature(self.fn).parameters
        named = {name: value for name, value in named.items() if name in parameters}
        bound = inspect.getcallargs(self.fn, *arguments, **named)
        for name, value in bound.items():
            _look_at_argument(value, is_constant=name in self.constexprs)
        _look_at_globals(_rewritten.get(self.fn), set())
        hooks, self.pre_run_hooks = self.pre_run_hooks, []
        for hook in hooks:
            hook(*arguments, **named)
        self.grid = tuple(map(operator.index, self.grid(bound) if callable(self.grid) else self.grid))
        named = {name: _plain(value) for name, value in named.items()}
        return call(self, *map(_plain, arguments), **named)

    return wrapper


def _look_at_argument(value: Any, *, is_constant: bool, has_names: bool = True) -> None:
    """Let pass what Triton accepts in a launch.

    Args:
        has_names: whether tuples may have names; those are made anew.

    Raises:
        TypeError: it is no tensor, number, descriptor, kernel or tuple of these, nor, for a constant, a text or type.
    """
    kind = type(value)
    if kind in _NUMBERS or (kind in _TENSORS and not _ATTRIBUTES & vars(value).keys()):
        return
    if kind is tuple or (has_names and issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple):
        for item in tuple.__iter__(value):
            _look_at_argument(item, is_constant=is_constant, has_names=has_names)
    elif kind is tl.constexpr:
        _look_at_argument(value.value, is_constant=True, has_names=False)
    elif kind is TensorWrapper:
        _look_at_argument(value.base, is_constant=False)
    elif kind is TensorDescriptor:
        for item in (value.base, *(tuple(part) for part in (value.shape, value.strides, value.block_shape))):
            _look_at_argument(item, is_constant=False)
        if any(type(part) not in (list, tuple, torch.Size) for part in (value.shape, value.strides, value.block_shape)):
            raise TypeError("the shape of a tensor descriptor is no list")
    elif kind is InterpretedFunction:
        _look_at_kernel(value, set())
    elif not is_constant or not (kind in (str, torch.dtype) or _is_of_the_language(value)):
        if not is_constant:
            # Raises an error of its own for most.
            mangle_type(value)
        raise TypeError(f"failed to specialize argument of type: {kind.__name__}")


def _plain(value: Any) -> Any:
    """The same value; tuples with names are made anew, of a class with nothing of the candidate's."""
    if not isinstance(value, tuple):
        return value
    items = [_plain(item) for item in tuple.__iter__(value)]
    return tuple(items) if type(value) is tuple else _named_tuple(type(value).__name__, type(value)._fields)(*items)


@functools.cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> type:
    return collections.namedtuple(name, fields)  # type: ignore[misc]


def _look_at_kernel(kernel: Any, seen: set[Any]) -> None:
    if _is_tritons(kernel.fn):
        return
    if type(kernel) is InterpretedFunction:
        if vars(kernel).keys() & _OF_KERNELS:
            raise ValueError(f"the kernel {kernel.fn.__name__} has methods that are not Triton's")
        _look_at_globals(_rewritten.get(kernel.rewrite()), seen)
        return
    if kernel.fn not in _bodies:
        # A function that Triton calls while it compiles: the interpreter calls it in the launch.
        _bodies[kernel.fn] = _Body(kernel.fn, textwrap.dedent("".join(inspect.getsourcelines(kernel.fn)[0])))
    _look_at_globals(kernel.fn, seen)


def _look_at_globals(function: Any, seen: set[Any]) -> None:
    """Let pass a function that Triton compiles, as far as the globals go that it and those that it calls name.

    Raises:
        ValueError: it has no source in a file.
        CompilationError: it names what Triton does not compile.
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
        _look_at_argument(value, is_constant=True, has_names=False)
    for (name, *attributes), node in body.names.items():
        value = function.__globals__.get(name, _UNDEFINED)
        if value is _UNDEFINED:
            value = getattr(builtins, name, _UNDEFINED)
        of_module = _is_module(value)
        while attributes and _is_module(value):
            value = getattr(value, attributes.pop(0), _UNDEFINED)
        kind = type(value)
        if value is _UNDEFINED:
            # Says so by itself, with the line that was come to.
            continue
        if kind in (InterpretedFunction, ConstexprFunction) and not attributes:
            _look_at_kernel(value, seen)
        elif kind is tl.constexpr:
            _look_at_argument(value, is_constant=True)
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
    """Whether a value is a module that has the same attributes whenever it is asked."""
    return type(value) is types.ModuleType and (value in (torch, np) or "__getattr__" not in vars(value))


def _is_of_the_language(value: Any) -> bool:
    """Whether a value is a function, class or type of Triton's."""
    if isinstance(value, types.FunctionType):
        # A function under `builtin` or `extern` stands in a cell of the wrapper.
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
    """The names in a function that are none of its own, each with the attributes of it that are named, and where."""
    function = _function(tree)
    # Of what stands in the place of an argument the value is looked at.
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
        # From the outside to the inside: the longest chain comes first.
        if isinstance(root, ast.Name) and id(root) in free and id(node) not in inside:
            yield (root.id, *parts), node
