"""What interpreted kernels and their launches are given: what Triton accepts on a device, and nothing else.

The interpreter runs a kernel's body as Python, so that a function of any library, or an object of any class, would
work there. Triton compiles neither. Here both end with the error that Triton raises on a device. What a launch calls
besides its kernel, the function that makes the grid and hooks, is called before the launch, as on a device.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import operator
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter, InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction, TensorWrapper, mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

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
_UNDEFINED = object()


class _Body:
    """Of a function that was rewritten: its source, and the globals that it names, each with attributes of it."""

    def __init__(self, function: Any, source: str) -> None:
        tree = ast.parse(source)
        self.function, self.source, self.node = function, source, tree.body[0]
        for node in ast.walk(tree):
            if isinstance(node, _NOT_COMPILED):
                self.refuse(f"unsupported AST node type: {type(node).__name__}")
        self.names = frozenset(_globals_in(tree))
        self.constants: dict[str, Any] = {}
        """Values of constant globals at the first launch."""

    def refuse(self, why: str) -> None:
        """Raise what Triton raises for a source that it cannot compile."""
        raise CompilationError(self.source, self.node, why)


_bodies: dict[Any, _Body] = {}
_rewritten: dict[Any, Any] = {}
"""What rewriting has made -> the function."""


def install() -> None:
    """Look at every launch of this process from now on."""
    FunctionRewriter.rewrite_ast = _rewriting(FunctionRewriter.rewrite_ast)
    FunctionRewriter._transform_ast = _transforming(FunctionRewriter._transform_ast)
    ConstexprFunction.__call__ = _of_constants(ConstexprFunction.__call__)
    interpreter.GridExecutor.__call__ = _launching(interpreter.GridExecutor.__call__)


def _rewriting(rewrite: Any) -> Any:
    @functools.wraps(rewrite)
    def wrapper(self: Any) -> Any:
        made = rewrite(self)
        _rewritten[made] = self.fn
        return made

    return wrapper


def _transforming(transform: Any) -> Any:
    @functools.wraps(transform)
    def wrapper(self: Any, source: str) -> Any:
        if not _is_tritons(self.fn):
            _bodies[self.fn] = _Body(self.fn, source)
        return transform(self, source)

    return wrapper


def _of_constants(call: Any) -> Any:
    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        if not _is_tritons(self.fn):
            for value in (*arguments, *named.values()):
                if isinstance(value, tl.tensor):
                    raise TypeError(f"{self.fn.__name__} takes values that are known when Triton compiles, no tensors")
        return call(self, *arguments, **named)

    return wrapper


def _launching(call: Any) -> Any:
    @functools.wraps(call)
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
        return call(self, *arguments, **named)

    return wrapper


def _look_at_argument(value: Any, *, is_constant: bool) -> None:
    """Let pass what Triton accepts in a launch.

    Raises:
        TypeError: it is no tensor, number, descriptor or tuple of these, nor, for a constant, a text, type or kernel.
    """
    kind = type(value)
    if kind in _NUMBERS or (kind in _TENSORS and not _ATTRIBUTES & vars(value).keys()):
        return
    if isinstance(value, tuple) and _goes_as_tuples_do(kind):
        for item in value:
            _look_at_argument(item, is_constant=is_constant)
    elif kind is tl.constexpr:
        _look_at_argument(value.value, is_constant=True)
    elif kind is TensorWrapper:
        _look_at_argument(value.base, is_constant=False)
    elif kind is TensorDescriptor:
        for item in (value.base, *value.shape, *value.strides, *value.block_shape):
            _look_at_argument(item, is_constant=False)
    elif kind is InterpretedFunction:
        _look_at_kernel(value, set())
    elif not is_constant or not (kind in (str, torch.dtype) or _is_of_the_language(value)):
        if not is_constant:
            # Raises an error of its own for most.
            mangle_type(value)
        raise TypeError(f"failed to specialize argument of type: {kind.__name__}")


def _goes_as_tuples_do(kind: type) -> bool:
    """Whether a class is the tuple, or that of a named one which changes nothing of it."""
    own = ("__iter__", "__getitem__", "__len__", "__getattribute__")
    return kind is tuple or (
        hasattr(kind, "_fields") and all(getattr(kind, name) is getattr(tuple, name) for name in own)
    )


def _look_at_kernel(kernel: InterpretedFunction[Any], seen: set[Any]) -> None:
    if not _is_tritons(kernel.fn):
        _look_at_globals(_rewritten.get(kernel.rewrite()), seen)


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
    for name, *attributes in body.names:
        value = function.__globals__.get(name, _UNDEFINED)
        if value is _UNDEFINED:
            value = getattr(builtins, name, _UNDEFINED)
        of_module = isinstance(value, types.ModuleType)
        while attributes and isinstance(value, types.ModuleType):
            value = getattr(value, attributes.pop(0), _UNDEFINED)
        kind = type(value)
        if kind is InterpretedFunction and not attributes:
            _look_at_kernel(value, seen)
        elif kind is tl.constexpr:
            _look_at_argument(value, is_constant=True)
            before = body.constants.setdefault(name, value.value)
            if before is not value.value and before != value.value:
                raise RuntimeError(f"Global variable {name} has changed since we compiled this kernel")
        elif value is _UNDEFINED:
            body.refuse(f"NameError('{name} is not defined')")
        elif not (of_module and kind in (*_NUMBERS, torch.dtype)) and not _is_compiled(value):
            body.refuse(
                f"NameError('Cannot access global variable {name} from within @jit'ed function. Triton kernels can "
                "only access global variables that are constexpr (`x = triton.language.constexpr(42)`).')"
            )


def _is_compiled(value: Any) -> bool:
    return (
        isinstance(value, types.ModuleType)
        or _is_of_the_language(value)
        or type(value) is ConstexprFunction
        or (isinstance(value, types.BuiltinFunctionType) and value.__self__ is math)
        or (isinstance(value, type | types.BuiltinFunctionType) and value in _BUILTINS)
    )


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


def _globals_in(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """The names in a function that are none of its own, each with the attributes of it that are named."""
    local = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        parts: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            parts.insert(0, root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            if root.id not in local:
                yield (root.id, *parts)
        else:
            waiting += [
                item
                for field, value in ast.iter_fields(node)
                if field not in ("decorator_list", "annotation", "returns")
                for item in (value if isinstance(value, list) else [value])
                if isinstance(item, ast.AST)
            ]
