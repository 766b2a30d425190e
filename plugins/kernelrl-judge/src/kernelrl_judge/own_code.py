"""The runner's own code, which a candidate shares a process with and can lay hands on: put back before each order."""

from __future__ import annotations

import builtins
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["OwnCode"]

_PACKAGE = "kernelrl_judge."
_FIXED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, re.Pattern, frozenset)
"""What stays as it is in a module. Its other variables may be its memory."""
_OF_CLASSES = (types.FunctionType, property, classmethod, staticmethod)


class OwnCode:
    """Functions and classes of the modules of this package that are loaded, as they are before a candidate is."""

    def __init__(self) -> None:
        self.replaced = False
        """Whether something was not what it had been."""
        self._modules = {name: module for name, module in sys.modules.items() if name.startswith(_PACKAGE)}
        self._fixed = [
            (module, {name: value for name, value in vars(module).items() if isinstance(value, _FIXED)})
            for module in self._modules.values()
        ]
        found = [value for _, kept in self._fixed for value in kept.values()]
        classes = [value for value in found if isinstance(value, type) and value.__module__.startswith(_PACKAGE)]
        self._methods = [
            (kind, {name: value for name, value in vars(kind).items() if isinstance(value, _OF_CLASSES)})
            for kind in dict.fromkeys(classes)
        ]
        inside = [value for _, kept in self._methods for value in kept.values()]
        own = {id(function): function for value in (*found, *inside) for function in _functions(value)}
        self._codes = [(function, function.__code__, function.__defaults__) for function in own.values()]
        self._builtins = {name: value for name, value in vars(builtins).items() if not name.startswith("_")}

    def restore(self) -> None:
        """Put back what was replaced, and notice it."""
        loaded = sys.modules
        for name, module in self._modules.items():
            if loaded.get(name) is not module:
                loaded[name] = module
                self.replaced = True
        for owner, kept in (*self._fixed, *self._methods):
            now = vars(owner)
            for name, value in kept.items():
                if now.get(name) is not value:
                    setattr(owner, name, value)
                    self.replaced = True
        for module in self._modules.values():
            # What has a built-in function's name goes before it.
            for name in vars(module).keys() & self._builtins.keys():
                delattr(module, name)
                self.replaced = True
        for function, code, defaults in self._codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                function.__code__, function.__defaults__ = code, defaults
                self.replaced = True
        present = vars(builtins)
        for name, value in self._builtins.items():
            # Whoever replaces one need not mean the runner.
            if present.get(name) is not value:
                present[name] = value


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """The functions of this package that a value is or holds."""
    if isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    elif isinstance(value, classmethod | staticmethod):
        parts = [value.__func__]
    else:
        parts = [value]
    for part in parts:
        if isinstance(part, types.FunctionType) and str(part.__module__).startswith(_PACKAGE):
            yield part
