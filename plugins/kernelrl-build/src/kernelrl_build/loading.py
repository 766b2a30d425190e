"""Modules from the files of a finished build.

Light: a process of untrusted code imports it beside its own work.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["has_extensions", "is_function_of_extension", "load_extension", "missing_symbol"]

_BINDER = "kernelrl_binder"
"""Name of the module that binds functions of extensions of kind `bound` (`binder.cpp`)."""
_MISSING = re.compile(r"undefined symbol: (\S+)")

_loaded: list[ModuleType] = []
"""Extensions of this process."""


def load_extension(name: str, paths: Sequence[str], reply: Mapping[str, Any]) -> ModuleType:
    """Load a built extension, and enter it in `sys.modules` under its name unless another module has that name.

    Args:
        name: of the extension.
        paths: of the extension and, for the kind `bound`, of the binder. A path must keep its meaning while the process
            lives, because the loader knows a library by its path: a descriptor (`/proc/self/fd/…`) stays open.
        reply: `BuildReply.body` as data; its keys `kind`, `bindings` and `module_name`.

    Raises:
        ImportError: it cannot be loaded; see `missing_symbol`.
        OSError: the same.
    """
    if reply["kind"] == "bound":
        extension_path, binder_path = paths
        module = ModuleType(name)
        functions = _binder(binder_path).bind(extension_path, json.dumps(reply["bindings"]))
        module.__dict__.update(functions)
    else:
        module = _import(reply["module_name"], paths[0])
    _loaded.append(module)
    known = sys.modules.get(name)
    if known is None or any(known is extension for extension in _loaded):
        sys.modules[name] = module
    return module


def has_extensions() -> bool:
    """Whether an extension with functions for Python was loaded."""
    return bool(_loaded)


def is_function_of_extension(function: Any) -> bool:
    """Whether a built-in function, or a method of a class, belongs to a loaded extension."""
    module = getattr(function, "__module__", None)
    if any(module == extension.__name__ for extension in _loaded):
        return True
    return any(value is function for extension in _loaded for value in vars(extension).values())


def missing_symbol(error: BaseException) -> str:
    """A sentence on the function that an extension declares and lacks; empty if `error` is about something else.

    The linker does not find it: an extension may have undefined symbols until it is loaded.
    """
    found = _MISSING.search(str(error))
    if found is None:
        return ""
    return f"{_function(found[1])} is declared, and neither a source nor a linked library defines it"


def _function(symbol: str) -> str:
    """Name of the function in a symbol of C++, without its parameters; the symbol itself if it is not that simple."""
    rest = symbol.removeprefix("_Z").removeprefix("N")
    names = []
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(names) or symbol


def _binder(path: str) -> Any:
    if _BINDER not in sys.modules:
        sys.modules[_BINDER] = _import(_BINDER, path)
    return sys.modules[_BINDER]


def _import(name: str, path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
