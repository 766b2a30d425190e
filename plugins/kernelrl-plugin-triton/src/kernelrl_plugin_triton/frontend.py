"""Compile each kernel with Triton's front end before the interpreter executes it.

The interpreter executes a kernel as Python, so it would accept functions of any library, changing globals, lists and
blocks of any size. The front end refuses what a device would refuse, with the same message. It needs no GPU.
"""

from __future__ import annotations

import difflib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from triton import knobs
from triton._C.libtriton import ir
from triton._utils import find_paths_if, get_iterable_path
from triton.backends.compiler import GPUTarget
from triton.compiler.code_generator import ast_to_ttir
from triton.compiler.compiler import ASTSource, make_backend
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, create_function_from_signature

__all__ = ["install"]

_TARGET = GPUTarget("cuda", 90, 32)
_LANGUAGE = "triton.language"


class _Kernel(JITFunction):  # type: ignore[misc]
    """A function of the interpreter as the front end reads it."""

    def __init__(self, function: InterpretedFunction) -> None:
        super().__init__(function.fn, **function.kwargs)
        self.bind = create_function_from_signature(self.signature, self.params, _frontend.backend)
        self.compiled: set[str] = set()
        """Types and constants with which it was compiled."""

    @property
    def cache_key(self) -> str:
        """The hash. Triton's would be of the source, and refuses functions of the interpreter."""
        return str(id(self))

    def get_capture_scope(self) -> dict[str, Any]:
        return {name: _frontend.kernel(value) for name, value in super().get_capture_scope().items()}


class _Frontend:
    """The front end of one target, and the language as it was before the interpreter replaced parts of it."""

    def __init__(self) -> None:
        self.backend = make_backend(_TARGET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._options = self.backend.parse_options({})
        self._functions = self.backend.get_codegen_implementation(self._options)
        self._accepted: set[str] = set()
        """Options of launches that were checked."""
        self._modules = self.backend.get_module_map()
        self._kernels: dict[Any, _Kernel] = {}
        self._language: list[tuple[Any, str, Any]] = []

    def kernel(self, value: Any) -> Any:
        """A value with the front end's counterparts of the interpreter's functions in it."""
        if isinstance(value, InterpretedFunction):
            if value.fn not in self._kernels:
                self._kernels[value.fn] = _Kernel(value)
            return self._kernels[value.fn]
        if isinstance(value, types.FunctionType):
            return getattr(value, "compiled", value)
        return tuple(map(self.kernel, value)) if type(value) is tuple else value

    def remember_language(self) -> None:
        """Record the language as it is now."""
        modules = [module for name, module in [*sys.modules.items()] if name.startswith(_LANGUAGE)]
        kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
        owners = [*modules, *(kind for kind in kinds if kind.__module__.startswith(_LANGUAGE))]
        self._language = [
            (owner, name, self._compiled(value))
            for owner in owners
            for name, value in vars(owner).items()
            if not name.startswith("__") or callable(value)
        ]

    def _compiled(self, value: Any) -> Any:
        # A method of tensors that is also a function of the language is in the closure of its wrapper.
        inner = getattr(value, "__closure__", None) or () if isinstance(value, types.FunctionType) else ()
        if len(inner) == 1 and isinstance(inner[0].cell_contents, InterpretedFunction):
            value = inner[0].cell_contents
        return self.kernel(value)

    def compile(self, function: InterpretedFunction, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Compile a kernel for the arguments of a launch, once for equal types and constants.

        Raises:
            CompilationError: Triton does not compile it.
            TypeError: Triton does not accept an argument.
            KeyError: An argument is neither a parameter of the kernel nor an option of a launch.
        """
        kernel = self.kernel(function)
        bound, specialized, options = kernel.bind(*arguments, **named)
        self._check_options(options, [*bound])
        kinds = [kind for kind, _ in specialized]
        constants = {
            path: self.kernel(get_iterable_path([*bound.values()], path))
            for path in find_paths_if(kinds, lambda _, kind: kind == "constexpr")
        }
        key = repr((kinds, constants))
        if key in kernel.compiled:
            return
        source = ASTSource(kernel, dict(zip(bound, kinds, strict=True)), constants)
        context = ir.context()
        ir.load_dialects(context)
        self.backend.load_dialects(context)
        changed = [*self._changed()]
        for owner, name, compiled, _ in changed:
            setattr(owner, name, compiled)
        try:
            with warnings.catch_warnings(), knobs.runtime.scope():
                warnings.simplefilter("ignore")
                knobs.runtime.interpret = False
                ast_to_ttir(kernel, source, context, self._options, self._functions, self._modules)
        finally:
            for owner, name, _, interpreted in changed:
                setattr(owner, name, interpreted)
        kernel.compiled.add(key)

    def _check_options(self, options: dict[str, Any], parameters: list[str]) -> None:
        """Raise the errors that a launch on a device would raise for its options."""
        key = repr(options)
        if key in self._accepted:
            return
        known = [*vars(self._options), *parameters]
        for name in options:
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise KeyError(f"Keyword argument {name} was specified but unrecognised{hint}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.backend.parse_options(options)
        self._accepted.add(key)

    def _changed(self) -> Iterator[tuple[Any, str, Any, Any]]:
        for owner, name, compiled in self._language:
            interpreted = vars(owner).get(name)
            if interpreted is not compiled:
                yield owner, name, compiled, interpreted


_frontend: _Frontend


def install() -> None:
    """Compile the kernel of every launch of this process from now on."""
    global _frontend
    _frontend = _Frontend()
    _frontend.remember_language()
    InterpretedFunction.run = _compiling(InterpretedFunction.run)


def _compiling(run: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: InterpretedFunction, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        _frontend.compile(self, arguments, named)
        return run(self, *arguments, grid=grid, warmup=warmup, **named)

    return wrapper
