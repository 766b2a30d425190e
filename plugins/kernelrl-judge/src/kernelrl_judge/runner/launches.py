"""Launches of the candidate's own kernels in a call: of Triton's kernels, and of functions and operators of extensions.

The list is made inside the runner and is evidence only. Launches through other ways, such as the driver, are not seen.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch

from kernelrl_build.loading import has_extensions, is_function_of_extension

__all__ = ["OwnCalls", "observed"]


@attrs.define
class OwnCalls:
    """Launches of one call."""

    before: Callable[[], None] = lambda: None
    """Called before each launch."""
    names: set[str] = attrs.field(factory=set)
    depth: int = 0
    """Number of functions of extensions that are executed now."""

    def launch(self, name: str) -> None:
        """Note a launch."""
        self.before()
        self.names.add(name)

    @contextlib.contextmanager
    def operator(self, func: Any) -> Iterator[None]:
        """Around the execution of an operator of the candidate. One that Python registered consists of other calls."""
        name = func._schema.name
        if _is_of_python(name):
            yield
            return
        self.launch(name)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


def _is_of_python(name: str) -> bool:
    """Whether Python code registered an implementation of an operator."""
    prefix = f"{name.replace('::', '/')}/"
    registered: Any = torch.library
    return any(key.startswith(prefix) for key in registered._impls)


@contextlib.contextmanager
def observed(own: OwnCalls) -> Iterator[None]:
    """Note the launches within the context, in this thread and in threads that start in it."""
    with contextlib.ExitStack() as stack:
        if "triton" in sys.modules:
            stack.enter_context(_triton_observed(own))
        if has_extensions():
            stack.enter_context(_functions_observed(own))
        yield


@contextlib.contextmanager
def _triton_observed(own: OwnCalls) -> Iterator[None]:
    originals: list[tuple[Any, str, Any]] = []
    for owner, name, wrap in _ways_to_launch(own):
        originals.append((owner, name, vars(owner)[name]))
        setattr(owner, name, wrap(vars(owner)[name]))
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


def _ways_to_launch(own: OwnCalls) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Class, name of its method, and wrapper of the method, for each way to launch a kernel of Triton."""
    from triton.compiler import CompiledKernel
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    def of_function(run: Any) -> Any:
        @functools.wraps(run)
        def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
            if not named.get("warmup"):
                own.launch(getattr(getattr(self, "fn", None), "__name__", "kernel"))
            return run(self, *arguments, **named)

        return wrapper

    def of_compiled(item: Any) -> Any:
        @functools.wraps(item)
        def wrapper(self: Any, grid: Any) -> Any:
            own.launch(str(getattr(self, "name", "kernel")))
            return item(self, grid)

        return wrapper

    yield JITFunction, "run", of_function
    yield InterpretedFunction, "run", of_function
    yield CompiledKernel, "__getitem__", of_compiled


@contextlib.contextmanager
def _functions_observed(own: OwnCalls) -> Iterator[None]:
    def profile(frame: Any, event: str, function: Any) -> None:
        if event.startswith("c_") and is_function_of_extension(function):
            if event == "c_call":
                own.launch(getattr(function, "__name__", "function"))
                own.depth += 1
            else:
                own.depth -= 1

    before = sys.getprofile()
    before_in_threads = threading.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)
