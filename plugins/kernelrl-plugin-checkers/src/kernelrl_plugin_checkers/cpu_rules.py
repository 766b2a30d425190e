"""The rule on candidates that a CPU executes: the modules that they import, and the calls of their C++.

On a CPU a library leaves no trace as it does in the recording of a GPU. A plain rule replaces the search for traces.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

from kernelrl_core.api.checkers import Candidate, EmbeddedSource, Evaluation, Outcome
from kernelrl_plugin_checkers.library import without_comments
from kernelrl_plugin_checkers.reading import Breach, HiddenSource, Reading, read

__all__ = ["cpu_breaches"]

RULE = "cpu_libraries"
_MODES = ("cpu", "interpreter")
_ALLOWED_TEXT = """
torch triton __future__ abc collections contextlib copy dataclasses enum functools hashlib itertools logging math
numbers operator os packaging pathlib platform random re shutil string struct sys tempfile textwrap time types typing
typing_extensions uuid warnings
"""
_ALLOWED = frozenset(_ALLOWED_TEXT.split())
_ARRAY_LIBRARIES_TEXT = """
cffi cupy cython jax mkl mpmath numba numexpr numpy pandas scipy sklearn sympy tensorflow
"""
_ARRAY_LIBRARIES = frozenset(_ARRAY_LIBRARIES_TEXT.split())
"""Libraries that may be installed and compute on a CPU. Another one may be imported where its absence is handled."""
_SWITCHES_TEXT = """
torch._C torch._ops torch._numpy torch._dispatch torch._subclasses torch.overrides torch.utils._python_dispatch
torch.jit.fork torch.futures sys.modules sys.meta_path
exec eval compile __import__ os.fork os.system os.popen
"""
_SWITCHES = frozenset(_SWITCHES_TEXT.split())
"""Parts of torch that change what its dispatcher sees or compute elsewhere, and ways to modules without an import."""
_PASSED_ON_TEXT = """
builtins ctypes gc importlib inspect multiprocessing np numpy subprocess threading
"""
_PASSED_ON = frozenset(_PASSED_ON_TEXT.split())
"""Modules that allowed ones have as attributes of these names."""
_OBJECTS_IN_CPP = re.compile(
    r"\b(?:py|pybind11)\s*::\s*(?:function|object|handle|module_?|eval|exec|array(?:_t)?)\b"
    r"|\b(?:PyObject_Call|PyObject_Vectorcall|PyNumber_|PyImport_|PyRun_|PyEval_)\w*|pybind11/(?:functional|numpy|eval|embed)\.h"
)
_SWITCHES_IN_CPP = re.compile(
    r"\b(?:(?:Exclude|Include|Force)DispatchKeyGuard|AutoDispatchBelow\w+|AutoNonVariableTypeMode|tls_set_dispatch_key_\w+"
    r"|tls_is_dispatch_key_\w+|_force_tls_local_dispatch_key_set|dlopen|dlsym|dlmopen|dl_iterate_phdr)\b"
)
_MOST_FOUND = 20


def cpu_breaches(candidate: Candidate, evaluation: Evaluation) -> Iterator[Breach]:
    """Breaches of the rule on CPUs; none where a GPU executed the candidate or a hack ended it.

    Sources that were built at run time have no line of the candidate.
    """
    if evaluation.provenance.get("mode") not in _MODES or evaluation.outcome is Outcome.HACKED:
        return
    reading = read(candidate.source)
    if reading is not None:
        try:
            own = frozenset(candidate.facts.own_modules)
            yield from ((RULE, getattr(node, "lineno", None), note) for node, note in _in_python(reading, own))
        except HiddenSource as error:
            yield "hidden_source", None, f"the source cannot be read: {error}"
    yield from _in_cpp(candidate.facts.embedded, in_source=True)
    yield from _in_cpp(evaluation.hidden.embedded, in_source=False)


def _in_python(reading: Reading, own: frozenset[str]) -> Iterator[tuple[ast.AST, str]]:
    """Nodes with breaches.

    Args:
        own: modules of the user's package. The name of a library among them allows nothing.
    """
    allowed = _ALLOWED | own.difference(_ARRAY_LIBRARIES, sys.stdlib_module_names)
    optional = {
        id(below)
        for node in reading.nodes
        if isinstance(node, ast.Try) and any(map(_handles_absence, node.handlers))
        for below in node.body
    }
    for node in reading.nodes:
        for name in _imported(node):
            package = name.partition(".")[0]
            may_be_absent = id(node) in optional and package not in (*_ARRAY_LIBRARIES, *sys.stdlib_module_names)
            if package not in allowed and not may_be_absent:
                yield node, f"import of {name}"
            elif switch := _switch(name):
                yield node, switch
        is_read = isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
        if is_read and (switch := _switch(reading.dotted(node))):
            yield node, switch


def _handles_absence(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id in ("ImportError", "ModuleNotFoundError")


def _imported(node: ast.AST) -> Iterator[str]:
    """Dotted names of the modules and objects that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def _switch(name: str) -> str:
    """The part of a dotted name that the rule forbids; empty if there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    if found := next((prefix for prefix in prefixes if prefix in _SWITCHES), ""):
        return found
    if parts[0] not in _ALLOWED:
        return ""
    # `logging.sys.modules` is `sys.modules`.
    pairs = map(".".join, pairwise(parts[1:]))
    return name if _PASSED_ON.intersection(parts[1:]) or _SWITCHES.intersection(pairs) else ""


def _in_cpp(pieces: Iterable[EmbeddedSource], *, in_source: bool) -> Iterator[Breach]:
    for piece in pieces:
        if piece.language == "triton":
            continue
        code = without_comments(piece.source)
        found = [
            *((match, "a Python object that C++ calls") for match in _OBJECTS_IN_CPP.finditer(code)),
            *((match, "a switch of torch's dispatcher or of the loader") for match in _SWITCHES_IN_CPP.finditer(code)),
        ]
        for match, what in found[:_MOST_FOUND]:
            line = piece.line + code.count("\n", 0, match.start()) if in_source else None
            yield RULE, line, f"{match[0]} in C++: {what}"
