"""Patches of Triton's interpreter, so that a kernel behaves as it does on a device. Imported by the zygote.

- The front end compiles a kernel before it is executed (`frontend`).
- Scalars, `and`, `or` and `not`, products, functions of libdevice and narrow floats (`narrow_floats`) have the results
  of compiled code.
- The autotuner uses the first configuration that remains after pruning: times are not meaningful here.
- Errors have the kernel's line.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import FunctionRewriter, GridExecutor, InterpretedFunction
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelrl_plugin_triton import device_properties, frontend, launches, libdevice, narrow_floats

_TF32_DROPPED = np.uint32(13)
"""Mantissa bits of float32 that tf32 lacks."""
_EXPONENT = np.uint32(0x7F800000)
_MISSING = interpreter._MISSING


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


# Semantics


def _converted(convert: Any) -> Any:
    """Convert floats among the arguments of a launch to scalars in float32, as integers are."""

    @functools.wraps(convert)
    def wrapper(argument: Any) -> Any:
        if type(argument) is float:
            with np.errstate(over="ignore"):
                held = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
            return tl.tensor(held, tl.float32)
        return convert(argument)

    return wrapper


def _constant(kind: Any, value: Any = None) -> Any:
    """Make no constant of a block: a constant times a block is a block."""
    return value if isinstance(value, tl.tensor) else object.__new__(kind)


class _Operators(ast.NodeTransformer):
    """Rewrite `and`, `or` and `not` to calls: Python would return one of two blocks, or a truth value. And attribute
    `value`: the constants of a kernel have it, and are their values in the interpreter."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        operands = [ast.Lambda(args=empty, body=self.visit(value)) for value in node.values]
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return self._call("_logical", [ast.Constant(value=name), *operands], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("_negated", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        is_value = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return self._call("_value", [node.value], node) if is_value else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "range":
            # Hints to the compiler, which Python's `range` does not know.
            node.keywords = []
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        # The interpreter postpones annotations, and would make text of a text.
        if isinstance(node.annotation, ast.Constant) and isinstance(node.annotation.value, str):
            node.annotation = ast.copy_location(ast.Name(id=node.annotation.value, ctx=ast.Load()), node.annotation)
        return node

    def _call(self, name: str, arguments: list[ast.expr], node: ast.AST) -> ast.AST:
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=arguments, keywords=[])
        return ast.copy_location(call, node)


def _of_language(name: str) -> Any:
    """A function of the language as it is when it is called: the interpreter replaces it in the language alone."""
    return lambda *arguments, **named: getattr(tl, name)(*arguments, **named)


def _with_closure(make: Any) -> Any:
    """Give a rewritten function the variables of the functions around it, and functions of the language under names of
    the file, which it otherwise lacks."""

    @functools.wraps(make)
    def wrapper(self: Any, tree: Any) -> Any:
        made = make(self, tree)
        around = {
            name: _of_language(value.__name__)
            for name, value in self.fn.__globals__.items()
            if isinstance(value, types.FunctionType) and tl.core.is_builtin(value) and hasattr(tl, value.__name__)
        }
        around |= inspect.getclosurevars(self.fn).nonlocals
        if not around:
            return made
        closed = types.FunctionType(made.__code__, {**made.__globals__, **around}, made.__name__, made.__defaults__)
        closed.__kwdefaults__, closed.__annotations__ = made.__kwdefaults__, made.__annotations__
        return closed

    return wrapper


def _logical(name: str, *operands: Any) -> Any:
    """Join operands element by element; a constant may decide, and then ends the evaluation, as in compiled code."""
    blocks = []
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            blocks.append(value)
        elif bool(value) is (name == "logical_or"):
            return value
    return functools.reduce(lambda left, right: getattr(left, name)(right), blocks) if blocks else value


def _value(constant: Any) -> Any:
    return getattr(constant, "value", constant)


def _negated(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


def _rounding(dot: Any) -> Any:
    """Round the float32 operands of products in tf32."""

    @functools.wraps(dot)
    def wrapper(self: Any, left: Any, right: Any, more: Any, precision: Any, *others: Any) -> Any:
        if getattr(precision, "name", "") == "TF32":
            left, right = map(_in_tf32, (left, right))
        return dot(self, left, right, more, precision, *others)

    return wrapper


def _in_tf32(factor: Any) -> Any:
    """The factor without the bits of the mantissa that tf32 lacks, rounded to the nearest, to even if both are."""
    if factor.data.dtype != np.float32:
        return factor
    bits = np.ascontiguousarray(factor.data).view(np.uint32)
    half = np.uint32((1 << (int(_TF32_DROPPED) - 1)) - 1) + ((bits >> _TF32_DROPPED) & np.uint32(1))
    rounded = (bits + half) >> _TF32_DROPPED << _TF32_DROPPED
    rounded = np.where((bits & _EXPONENT) == _EXPONENT, bits, rounded)
    return interpreter.TensorHandle(rounded.view(np.float32), factor.dtype)


def _of_one_bit(operate: Any) -> Any:
    """Give comparisons the type of truth values, not that of their operands, to which a scalar would be spread."""

    @functools.wraps(operate)
    def wrapper(self: Any, left: Any, right: Any, operation: Any) -> Any:
        made = operate(self, left, right, operation)
        return interpreter.TensorHandle(made.data, tl.int1) if made.data.dtype == np.bool_ else made

    return wrapper


def _of_any_shape(patch: Any) -> Any:
    """Let a scalar be the bound of a loop. Triton 3.6 converts an array of one dimension, which NumPy 2.5 refuses."""

    @functools.wraps(patch)
    def wrapper(kind: Any, scope: Any) -> None:
        patch(kind, scope)
        scope.set_attr(kind, "__index__", lambda self: int(self.handle.data.item()))

    return wrapper


# Speed


def _in_place(copied: Any) -> Any:
    """Pass CPU tensors to the kernel directly. The interpreter would copy them."""

    @functools.wraps(copied)
    def wrapper(self: Any, arguments: Any, named: Any) -> Any:
        return (
            (arguments, named) if all(map(_is_here, (*arguments, *named.values()))) else copied(self, arguments, named)
        )

    return wrapper


def _is_here(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_here, value))
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


Autotuner._bench = _bench
for _class in (GridExecutor, InterpretedFunction):
    _class.__call__ = _unwrapped(_class.__call__)
interpreter._implicit_cvt = _converted(interpreter._implicit_cvt)
tl.constexpr.__new__ = _constant
_transformer = FunctionRewriter.ast_transformer
FunctionRewriter.ast_transformer = types.SimpleNamespace(
    visit=lambda tree: _transformer.visit(_Operators().visit(tree))
)
FunctionRewriter._compile_and_exec = _with_closure(FunctionRewriter._compile_and_exec)
# The interpreter copies its globals to those of each rewritten function.
interpreter._logical, interpreter._negated, interpreter._value = _logical, _negated, _value
narrow_floats.install()
interpreter.InterpreterBuilder.binary_op = _of_one_bit(interpreter.InterpreterBuilder.binary_op)
interpreter.InterpreterBuilder.create_dot = _rounding(interpreter.InterpreterBuilder.create_dot)
interpreter.inspect = _inspect()
GridExecutor._init_args_hst = _in_place(GridExecutor._init_args_hst)
GridExecutor._restore_args_dev = _copied_back(GridExecutor._restore_args_dev)
if not interpreter.interpreter_builder.options.debug:
    # Overflow checks of integers are device assertions, active only with `debug`.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
interpreter._patch_lang_tensor = _of_any_shape(interpreter._patch_lang_tensor)
interpreter._patch_lang = _patched_again(interpreter._patch_lang)
launches.install()
libdevice.install()
frontend.install()
device_properties.install()
