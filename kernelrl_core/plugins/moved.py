"""Replacement for an import of a private or moved module of the core."""

from __future__ import annotations

import ast
import functools
import traceback
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path

__all__ = ["new_import"]

_CORE, _API = "kernelrl_core", "kernelrl_core.api"


def new_import(error: BaseException) -> str:
    """The statement that replaces a failed import of the core; empty for any other error.

    Each name of the failed statement is looked up in the exports of `kernelrl_core.api`.
    """
    if not isinstance(error, ImportError) or (error.name or "").partition(".")[0] != _CORE:
        return ""
    wanted, exports = next(_failing_names(error), []), _exports()
    modules: dict[str, list[str]] = {}
    for name in wanted:
        if name in exports:
            # If several modules export the name, take the one that exports most of the other names.
            best = max(exports[name], key=lambda module: (sum(module in exports.get(n, ()) for n in wanted), module))
            modules.setdefault(best, []).append(name)
    if not modules:
        return f"an import from {_API}, which docs/reference/python.md lists"
    return "; ".join(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items()))


def _failing_names(error: ImportError) -> Iterator[list[str]]:
    """Names in the core's import statements on the error's traceback, innermost first."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        try:
            tree = ast.parse(Path(frame.filename).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
            failed = node.lineno <= (frame.lineno or 0) <= (node.end_lineno or node.lineno)
            if failed and (node.module or "").partition(".")[0] == _CORE:
                yield [alias.name for alias in node.names]


@functools.cache
def _exports() -> Mapping[str, tuple[str, ...]]:
    """Name -> API modules that export it, parsed from their source, because the core never imports the API."""
    spec = util.find_spec(_API)
    found: dict[str, tuple[str, ...]] = {}
    for directory in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(directory).glob("*.py")):
            module = _API if path.stem == "__init__" else f"{_API}.{path.stem}"
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                    for alias in node.names:
                        found[alias.name] = (*found.get(alias.name, ()), module)
    return found
